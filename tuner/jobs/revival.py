"""The former name of `tuner.jobs.recover`, which launcher files of running clusters still call."""

from tuner.jobs.recover import main

if __name__ == "__main__":
    main()
