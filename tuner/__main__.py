"""``python -m tuner``."""

import gc

from tuner.cli import main

if __name__ == "__main__":
    try:
        main()
    finally:
        gc.freeze()  # else Python goes through all of torch and Ray once more before it ends: 0.9 s, so 0.2 s
