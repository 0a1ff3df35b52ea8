"""Draw locality against the distance to the decision boundary, between models and within each of them.

python figures/locality_vs_distance.py [bench/results/tiny] [--out figures/rendered]
"""

from one_figure import main

if __name__ == "__main__":
    main("distance", __doc__)
