"""Draw Figure 3.2: F1 against accuracy for SM, IG and BIG, with a model of random weights as the floor.

python figures/fig3_2.py [bench/results/tiny] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("3.2", __doc__)
