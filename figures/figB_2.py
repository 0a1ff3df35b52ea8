"""Draw Figure B.2: recall against accuracy for SM, IG and BIG.

python figures/figB_2.py [bench/results/tiny] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("B.2", __doc__)
