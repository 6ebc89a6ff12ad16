"""TabVFL: TabNet, split across the parties."""
