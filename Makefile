# `make demo`, `make test` and `make docs` create .venv, install what is needed, and run. Nothing else has to be done first.
PYTHON ?= python3

.PHONY: demo test docs .venv

.venv: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "locality needs Python 3.11 or newer, $(PYTHON) is older: run make PYTHON=python3.11"; exit 1; }
	@echo "Installing into .venv; this takes a few minutes the first time."
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]'
	touch .venv/installed

# A cat photograph that scikit-image carries.
cat = $$(.venv/bin/python -c 'import skimage.data; print(skimage.data.__path__[0])')/chelsea.png

demo: .venv
	.venv/bin/python figures/data_sheets.py --out demo
	.venv/bin/locality bench demo --out demo/results
	.venv/bin/locality table demo/results
	.venv/bin/locality figures demo/results --which 3.4,3.5 --out demo --format png
	.venv/bin/locality report demo/results --out demo/report.html
	.venv/bin/locality explain "$(cat)" --model efficientnet_lite0 --out demo/cat.png
	.venv/bin/locality compare shapes_cnn shapes_cnn_robust --limit 60
	.venv/bin/locality certify --model shapes_liresnet --eps 36/255,72/255 --limit 100
	@echo "Open demo/report.html. To use the command locality in this shell: source .venv/bin/activate"

test: .venv
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/python -m pytest -n auto

# The site, in docs/_build/html. The build needs no network, and a warning is an error.
docs: .venv
	.venv/bin/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"
