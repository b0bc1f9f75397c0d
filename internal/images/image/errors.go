package image

import "errors"

// Errors that callers branch on; ErrRecipe is beside the recipe.
var (
	// ErrNotFound: the store has no image of that name.
	ErrNotFound = errors.New("not found")
	// ErrName: the name cannot be an image's.
	ErrName = errors.New("bad image name")
	// ErrDamaged: an image's files are not what its metadata says.
	ErrDamaged = errors.New("image is damaged")
)
