"""Draw Figure B.1: precision against accuracy for SM, IG and BIG.

python figures/figB_1.py [bench/results/tiny] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("B.1", __doc__)
