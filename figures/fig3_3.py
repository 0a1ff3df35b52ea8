"""Draw Figure 3.3: heat maps of SM, IG and BIG for a standard model.

python figures/fig3_3.py [bench/results/demo] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("3.3", __doc__, "bench/results/demo")
