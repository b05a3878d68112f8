"""The rules of every engine that has tables: what operations do to rows, and what rows answer."""
