"""vFedSec: split learning behind pairwise masks."""
