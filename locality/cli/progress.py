"""Progress of long work, as commands show it."""

from locality.progress import progress as progress
