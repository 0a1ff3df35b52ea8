"""Draw Figure 3.4: F1 against accuracy under attack; arrows lead from standard models to their robust twins.

python figures/fig3_4.py [bench/results/tiny] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("3.4", __doc__)
