package image

import "errors"

// Errors for callers to branch on. ErrRecipe is defined with the recipe.
var (
	// ErrNotFound: the store has no image with this name.
	ErrNotFound = errors.New("not found")
	// ErrName: the name is invalid for an image.
	ErrName = errors.New("bad image name")
	// ErrDamaged: an image's files do not match its metadata.
	ErrDamaged = errors.New("image is damaged")
)
