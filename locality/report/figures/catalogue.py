"""Every figure by its number: what draws it, what it shows, and what its file is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.text import Text

from locality.report.aggregates import NotMeasuredError
from locality.report.figures import distance, scatter
from locality.report.figures.geometry import geometry_figure
from locality.report.figures.heatmaps import method_heatmaps, twin_heatmaps
from locality.report.figures.layer_randomisation import sanity_figure
from locality.report.figures.options import Choice, by_data, file_words
from locality.report.figures.style import ACROSS, Width, write_figure
from locality.results.results import Results

RHO, PANELS = "ρ = ", "several panels"
# What a caption says; of a pair, only where the first is in the figure: a word of the legend, a ρ, several panels.
Sentence = str | tuple[str, str]


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn from results."""

    file: str  # without a suffix
    title: str
    sentences: tuple[Sentence, ...]
    draw: Callable[[Results, Choice, Width], Figure]
    of_results: bool = True  # else it is the same for all

    def caption(self, figure: Figure, data: str = "") -> str:
        """What the figure shows: no word of what is not drawn in it."""
        written = {text.get_text() for text in figure.findobj(Text)}
        written |= {RHO} if any(RHO in text for text in written) else set()
        written |= {PANELS} if len(figure.axes) > 1 else set()
        said = []
        for sentence in self.sentences:
            sign, words = ("", sentence) if isinstance(sentence, str) else sentence
            if not sign or sign in written:
                said.append(words)
        return " ".join([*said, *([f"Data: {data}."] if data and self.of_results else [])])


@dataclass(frozen=True)
class Drawn:
    """What was written, and what was not, with the reason: by figure, and by data set where there are several."""

    files: dict[str, list[Path]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


FLOOR = (scatter.FLOOR, "Dashed: a model with random weights; its band is its interval.")
BARS = "Bars are 95 % intervals over images: bootstrap for scores, Wilson for accuracies."
SCALES = (PANELS, "Each panel has its own scale upwards.")
MODELS_RHO = (RHO, "ρ is Spearman's over the models.")
HEAT = "Red speaks for the predicted class, blue against it; one colour scale a row. The first images of the gallery."

FIGURES: dict[str, Drawing] = {
    "2.3": Drawing(
        "fig2_3",
        "The geometry of SM, BSM, IG and BIG",
        (
            "Computed on a ReLU network of two inputs. Left: SM leads to the line H₁ that its own polytope suggests, BSM to "
            "the nearest real boundary, H₂. Right: IG averages over the polytopes between black and x, BIG over those near "
            "x.",
            "Network and x were picked to show both differences: of twelve seeds and of the points with both lines in view, "
            "those where the smaller of the two gaps, BSM − SM and BIG − IG in cosine with the normal, is largest. Means "
            "are over the view.",
        ),
        lambda results, choice, width: geometry_figure(width=width),
        of_results=False,
    ),
    "2.4": Drawing(
        "fig2_4",
        "Sanity check",
        (
            "Rank correlation of a method's maps before and after a model's layers are drawn anew, from the top down: 1 is "
            "unchanged, 0 has nothing in common. Bars are 95 % bootstrap intervals over images; methods stand a little "
            "beside each other.",
        ),
        lambda results, choice, width: sanity_figure(results, None, choice.methods, width),
    ),
    "3.2": Drawing(
        "fig3_2",
        "Locality against accuracy",
        (FLOOR, BARS, SCALES, MODELS_RHO),
        lambda results, choice, width: scatter.locality_against_accuracy(
            results, choice.score or "f1", choice.methods, width
        ),
    ),
    "3.3": Drawing(
        "fig3_3",
        "Attributions of one model",
        (HEAT,),
        lambda results, choice, width: method_heatmaps(results, methods=choice.methods, width=width),
    ),
    "3.4": Drawing(
        "fig3_4",
        "Locality against robust accuracy",
        (
            ("standard", "Standard models are blue and hollow."),
            ("robust", "Robust models are green and full."),
            (scatter.TWIN, "Thin arrows lead from a model to its robust twins."),
            (scatter.TREND, "The dark arrow is the least-squares line of the robust models."),
            FLOOR,
            BARS,
            SCALES,
            (RHO, "ρ is Spearman's over the robust models."),
        ),
        lambda results, choice, width: scatter.locality_against_robustness(
            results, choice.score or "f1", choice.methods, choice.budget, width
        ),
    ),
    "3.5": Drawing(
        "fig3_5",
        "Attributions of a standard model and of its robust twin",
        (HEAT,),
        lambda results, choice, width: twin_heatmaps(results, methods=choice.methods, width=width),
    ),
    "B.1": Drawing(
        "figB_1",
        "Precision against accuracy",
        ("How much of the positive attribution lies in the box.", FLOOR, BARS, SCALES, MODELS_RHO),
        lambda results, choice, width: scatter.locality_against_accuracy(results, "precision", choice.methods, width),
    ),
    "B.2": Drawing(
        "figB_2",
        "Recall against accuracy",
        ("How much of the attribution in the box is positive.", FLOOR, BARS, SCALES, MODELS_RHO),
        lambda results, choice, width: scatter.locality_against_accuracy(results, "recall", choice.methods, width),
    ),
    "distance": Drawing(
        "locality_vs_distance",
        "Locality against boundary distance",
        (
            "A marker is a model's mean.",
            (
                distance.QUARTERS,
                "Its line joins the quarters of its images, nearest to the boundary first; if distance itself went with "
                "locality, lines would rise, too.",
            ),
            "Bars and bands are 95 % bootstrap intervals over images.",
            SCALES,
            (RHO, "ρ is Spearman's: over models, and within them (median)."),
        ),
        lambda results, choice, width: distance.locality_against_distance(
            results, choice.score or "f1", choice.methods, width
        ),
    ),
}


def draw_figures(
    results: Results,
    folder: Path,
    which: Sequence[str] | None = None,
    forms: Sequence[str] = ("png", "pdf"),
    width: Width = "page",
    choice: Choice | None = None,
) -> Drawn:
    """Draw the named figures into `folder`, or all that the results allow; what is asked for by name must be possible.

    Of several data sets each has its own figures, with its name in the file's. With `width="column"`, panels stand below
    each other, for one column of a paper, with letters as large as on a page.
    """
    if width not in ACROSS:
        raise ValueError(f"`width` must be page or column, got {width!r}")
    unknown = [name for name in which or () if name not in FIGURES]
    if unknown:
        raise ValueError(f"`which` must name figures among {', '.join(FIGURES)}, got {', '.join(unknown)}")
    drawn = Drawn()
    possible: set[str] = set()
    parts = by_data(results)
    words = file_words(list(parts))
    for place, (data, part) in enumerate(parts.items()):
        for name in which or FIGURES:
            drawing = FIGURES[name]
            apart = drawing.of_results and len(parts) > 1
            if place and not apart:
                continue
            key, file = (f"{name} on {data}", f"{drawing.file}_{words[data]}") if apart else (name, drawing.file)
            try:
                figure = drawing.draw(part, choice or Choice(), width)
            except NotMeasuredError as reason:
                drawn.left_out[key] = str(reason)
            else:
                drawn.files[key] = write_figure(figure, folder, file, forms)
                possible.add(name)
    for name in which or ():
        if name not in possible:
            reasons = "; ".join(dict.fromkeys(drawn.left_out.values()))
            raise NotMeasuredError(f"Figure {name} cannot be drawn from {results.name}: {reasons}")
    return drawn
