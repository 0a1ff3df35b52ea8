"""Draw Figure 3.5: heat maps of a standard model above those of its robust twin, on the same images.

python figures/fig3_5.py [demo/results] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("3.5", __doc__, "demo/results")
