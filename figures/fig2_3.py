"""Draw Figure 2.3: what SM, BSM, IG and BIG see of a decision boundary, computed on a ReLU network with two inputs.

python figures/fig2_3.py [--out figures/rendered]
"""

import argparse
from pathlib import Path

from locality.report.geometry import geometry_figure
from locality.report.palette import write_figure

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"), help="folder for the PNG and the PDF")
    parser.add_argument("--width", choices=["page", "column"], default="page", help="of a paper")
    given = parser.parse_args()
    for path in write_figure(geometry_figure(width=given.width), given.out, "fig2_3"):
        print(path)
