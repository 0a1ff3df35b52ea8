"""Draw Figure 3.3: heat maps of SM, IG and BIG for a standard model.

python figures/fig3_3.py [demo/results] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("3.3", __doc__, "demo/results")
