package merge

import (
	"bytes"
	"context"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/guestdiff"
	"github.com/forkd/forkd/internal/leaf/diff3"
)

// mergeContent decides the content of a file that both sides have changed. It reports false if that
// is a conflict, which it has recorded.
func (p *plan) mergeContent(ctx context.Context, t guestdiff.Three, s *step) (bool, error) {
	same, err := equal(ctx, t.Path, t.Ours, p.sides.ours, t.Theirs, p.sides.theirs)
	if err != nil || same {
		return err == nil, err
	}
	if t.Base == nil || !t.Base.Mode.IsRegular() {
		p.conflict(t, "add/add", "different files", true)
		return false, nil
	}
	same, err = equal(ctx, t.Path, t.Base, p.sides.base, t.Theirs, p.sides.theirs)
	if err != nil || same {
		return err == nil, err
	}
	same, err = equal(ctx, t.Path, t.Base, p.sides.base, t.Ours, p.sides.ours)
	if err != nil {
		return false, err
	}
	if same {
		s.content = fromTheirs
		return true, nil
	}
	text, ok, err := p.mergeText(ctx, t)
	if err != nil {
		return false, err
	}
	if !ok {
		p.conflict(t, "content", "both have changed it", true)
		return false, nil
	}
	if text != "" { // it is ours, unless it differs
		s.content, s.text = merged, text
	}
	return true, nil
}

// equal compares the content of a file in two guests.
func equal(ctx context.Context, path string, a *guestdiff.Entry, in *guest, b *guestdiff.Entry,
	other *guest) (bool, error) {
	if a.Size != b.Size {
		return false, nil
	}
	if a.Size == 0 {
		return true, nil
	}
	x, err := in.digest(ctx, path)
	if err != nil {
		return false, err
	}
	y, err := other.digest(ctx, path)
	return x == y, err
}

// mergeText merges a text line by line. The result is empty if ours has all changes. It reports false
// if one version is no text, or large, or if both change the same lines.
func (p *plan) mergeText(ctx context.Context, t guestdiff.Three) (string, bool, error) {
	for _, e := range []*guestdiff.Entry{t.Base, t.Ours, t.Theirs} {
		if e.Size > maxText {
			return "", false, nil
		}
	}
	var texts [3]string
	for i, g := range []*guest{p.sides.base, p.sides.ours, p.sides.theirs} {
		var b bytes.Buffer
		if err := g.read(ctx, t.Path, maxText+1, &b); err != nil {
			return "", false, err
		}
		if texts[i] = b.String(); b.Len() > maxText || strings.IndexByte(texts[i], 0) >= 0 {
			return "", false, nil
		}
	}
	text, ok := diff3.Merge(texts[0], texts[1], texts[2])
	switch {
	case !ok || text == texts[1]:
		return "", ok, nil
	case text == "":
		return "", false, nil // each has removed a part: a person decides whether an empty file is meant
	case !charge(ctx)(len(text)):
		return "", false, sandbox.Errorf(sandbox.ErrBusy, "",
			"the merged texts need more of the daemon's memory than a request can have now")
	}
	return text, true, nil
}
