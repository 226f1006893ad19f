"""A user's training code: found, made one function of the configuration, and read.

One module a kind: functions, Trainable classes and wrapped functions of Ray Tune, its earlier interfaces, plain
scripts, Optuna objectives. None of them imports Ray before the user's own module has done so: ``validate`` needs no
Ray.
"""
