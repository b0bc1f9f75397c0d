package snapshot

import (
	"fmt"
	"regexp"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

var tagPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckTag returns an error if the tag is invalid. Every method of Store with a tag calls it before it builds a
// path.
func CheckTag(tag string) error {
	if !tagPattern.MatchString(tag) {
		return fmt.Errorf("%w: %q, want 1 to 64 of A-Z a-z 0-9 _ -", storeerr.ErrTag, ellipsis.Clip(tag, 80))
	}
	return nil
}
