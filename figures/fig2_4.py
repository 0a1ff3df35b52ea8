"""Draw Figure 2.4: how alike a method's maps stay while the model's layers are drawn anew, from the top down.

python figures/fig2_4.py [bench/results/tiny] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("2.4", __doc__)
