package build

import (
	"cmp"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// AssignTags gives tags to the build for a name with an optional tag.
func (s *Store) AssignTags(owner, target string, tags []string, now time.Time) (Build, []string, error) {
	if _, _, err := ParseName(target); err != nil {
		return Build{}, nil, err
	}
	tags, err := tagsAsked(tags)
	if err != nil {
		return Build{}, nil, err
	}
	t, _, err := s.Find(owner, target)
	if err != nil {
		return Build{}, nil, err
	}
	_, tag, _ := ParseName(target)
	var b Build
	err = s.change(t.ID, func(t *Template) error {
		var ok bool
		if b, ok = t.Tagged(cmp.Or(tag, DefaultTag)); !ok {
			return noTemplate(target)
		}
		for _, tag := range tags {
			t.Tags[tag] = Assigned{b.ID, now}
		}
		if len(t.Tags) > maxTags {
			return sandbox.Errorf(sandbox.ErrInvalid, "",
				"template %s would have %d tags, want at most %d", t.Name, len(t.Tags), maxTags)
		}
		return nil
	})
	return b, tags, err
}

// RemoveTags removes tags from a template. Missing tags are no error. The default tag stays.
func (s *Store) RemoveTags(owner, name string, tags []string) error {
	_, tag, err := ParseName(name)
	if err == nil && tag != "" {
		err = sandbox.Errorf(sandbox.ErrInvalid, "", "Template name should not contain a tag, use the 'tags' field instead")
	}
	if err != nil {
		return err
	}
	if tags, err = tagsAsked(tags); err != nil {
		return err
	}
	if slices.Contains(tags, DefaultTag) {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "Cannot delete the '%s' tag", DefaultTag)
	}
	t, err := s.Template(owner, name)
	if err != nil {
		return err
	}
	return s.change(t.ID, func(t *Template) error {
		for _, tag := range tags {
			delete(t.Tags, tag)
		}
		return nil
	})
}

func tagsAsked(tags []string) ([]string, error) {
	tags, err := CheckTags(tags)
	if err == nil && len(tags) == 0 {
		err = sandbox.Errorf(sandbox.ErrInvalid, "", "At least one tag is required")
	}
	return tags, err
}

// OwnerOf returns the owner of a template by its ID, for links that do not name the owner.
func (s *Store) OwnerOf(id string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.templates.all[id]
	return t.Owner, ok
}
