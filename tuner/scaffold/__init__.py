"""The files that ``tuner init`` writes: an experiment for a script that is there, or a new project.

A script is read as text: nothing of it runs.
"""
