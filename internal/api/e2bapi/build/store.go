package build

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Status is the status of a build, with the names clients use.
type Status string

// In order. One of the last two is final.
const (
	Waiting  Status = "waiting"
	Building Status = "building"
	Ready    Status = "ready"
	Failed   Status = "error"
)

// Reason is the cause of a build's failure.
type Reason struct {
	Message string  `json:"message"`              // error for the client, clipped to 4 KiB
	Step    string  `json:"step,omitempty"`       // step that failed, as in Entry; empty if none did
	Entries []Entry `json:"logEntries,omitempty"` // last entries of that step, at most 50
}

// Build is one attempt to make a template.
type Build struct {
	ID        string    `json:"id"`                   // a UUID
	Tags      []string  `json:"tags"`                 // its tags when it is ready
	Requested time.Time `json:"requested"`            // time of the request, before its uploads
	Finished  time.Time `json:"finished,omitzero"`    // zero while it waits or runs
	CPUs      int       `json:"cpus,omitempty"`       // as requested; 0: the base's
	MemoryMiB int       `json:"memory_mib,omitempty"` // as requested; 0: the base's
	Status    Status    `json:"status"`               // Waiting until its steps run
	Reason    *Reason   `json:"reason,omitempty"`     // set if Status is Failed
	// Snapshot is the tag of the snapshot from which sandboxes are forked.
	Snapshot string `json:"snapshot,omitempty"`
	// Context is the context after its steps. Builds on top of it use the same context.
	Context Context `json:"context,omitzero"`
	// Layers are the keys of the layers below it and of its own.
	Layers []string `json:"layers,omitempty"`
	// Sandbox is the sandbox of the current step.
	Sandbox string `json:"sandbox,omitempty"`
	// Begun is set when the build's steps were sent. A build can begin only once.
	Begun bool `json:"begun,omitempty"`
}

// Assigned is the build of a tag.
type Assigned struct {
	Build string    `json:"build"` // ID of a build of the same template
	At    time.Time `json:"at"`    // time of the assignment
}

// Template is a name with its builds and tags. It is a copy: changes have no effect on the store.
type Template struct {
	ID      string              `json:"id"`              // random, 20 letters and digits
	Name    string              `json:"name"`            // unique for its owner
	Owner   string              `json:"owner,omitempty"` // tenant; empty: the operator
	Created time.Time           `json:"created"`         // time of its first build's request
	Tags    map[string]Assigned `json:"tags"`            // by tag; a build may have several
	Builds  []Build             `json:"builds"`          // oldest first, at most 200
}

func (t Template) clone() Template {
	t.Tags, t.Builds = maps.Clone(t.Tags), slices.Clone(t.Builds)
	return t
}

// Build returns the build with this ID.
func (t Template) Build(id string) (Build, bool) {
	for _, b := range t.Builds {
		if b.ID == id {
			return b, true
		}
	}
	return Build{}, false
}

// Tagged returns the build of a tag. An empty tag means the default tag.
func (t Template) Tagged(tag string) (Build, bool) {
	a, ok := t.Tags[cmp.Or(tag, DefaultTag)]
	if !ok {
		return Build{}, false
	}
	return t.Build(a.Build)
}

// layer is the snapshot of a step.
type layer struct {
	Tag   string    `json:"tag"`
	Below string    `json:"below,omitempty"` // tag of the snapshot that it is built on
	Owner string    `json:"owner,omitempty"`
	Made  time.Time `json:"made"`
	Used  time.Time `json:"used"`
	// Context is the context for programs of the following steps.
	Context Context `json:"context,omitzero"`
	// Pending means that its snapshot was about to be made. A layer that stays pending must be
	// deleted.
	Pending bool `json:"pending,omitempty"`
}

// Store stores templates, builds, layers and uploads.
type Store struct {
	dir string

	mu        sync.Mutex // guards the fields below, and orders writes
	templates table[Template]
	layers    table[layer]
	// outdated holds layers replaced under their keys, by tag.
	outdated table[layer]
	pending  map[string]pending // unfinished uploads, by owner
	reserve  int64

	work *fair // turns for checks of archives
}

// OpenStore reads the records below dir, and creates dir if it is missing. Unknown or damaged files
// stay and are returned in skipped.
func OpenStore(dir string) (s *Store, skipped []string, err error) {
	s = &Store{dir: dir, pending: map[string]pending{}, reserve: defaultReserve,
		work: newFair(archivesAtOnce, archivesEach)}
	var more []string
	if s.templates, skipped, err = openTable[Template](filepath.Join(dir, "templates")); err != nil {
		return nil, nil, err
	}
	if s.layers, more, err = openTable[layer](filepath.Join(dir, "layers")); err != nil {
		return nil, nil, err
	}
	skipped = append(skipped, more...)
	if s.outdated, more, err = openTable[layer](filepath.Join(dir, "outdated")); err != nil {
		return nil, nil, err
	}
	skipped = append(skipped, more...)
	if err := s.openFiles(); err != nil {
		return nil, nil, err
	}
	return s, skipped, nil
}

// noTemplate is the error for a missing template and for another tenant's.
func noTemplate(name string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, "", "template '%s' not found", sandbox.Clip(name))
}

// Template returns a template by its ID or its name, without a tag.
func (s *Store) Template(owner, idOrName string) (Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findLocked(owner, idOrName)
}

func (s *Store) findLocked(owner, idOrName string) (Template, error) {
	if t, ok := s.templates.all[idOrName]; ok && t.Owner == owner {
		return t.clone(), nil
	}
	name, _, err := ParseName(idOrName)
	if err != nil {
		return Template{}, noTemplate(idOrName)
	}
	for _, t := range s.templates.all {
		if t.Name == name && t.Owner == owner {
			return t.clone(), nil
		}
	}
	return Template{}, noTemplate(idOrName)
}

// All returns the templates of an owner, oldest first.
func (s *Store) All(owner string) []Template {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Template
	for _, t := range s.templates.all {
		if t.Owner == owner {
			out = append(out, t.clone())
		}
	}
	slices.SortFunc(out, func(a, b Template) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Find returns the template and the build for a name with an optional tag, or for an ID.
func (s *Store) Find(owner, name string) (Template, Build, error) {
	t, err := s.Template(owner, name)
	if err != nil {
		return t, Build{}, err
	}
	_, tag, _ := ParseName(name)
	b, ok := t.Tagged(tag)
	if !ok || b.Status != Ready {
		return t, Build{}, sandbox.Errorf(sandbox.ErrNotFound, "",
			"template '%s' not found: it has no build that is tagged %q",
			sandbox.Clip(name), cmp.Or(tag, DefaultTag))
	}
	return t, b, nil
}

// IsLayer reports whether a snapshot belongs to a build.
func (s *Store) IsLayer(tag string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range []table[layer]{s.layers, s.outdated} {
		for _, l := range t.all {
			if l.Tag == tag {
				return true
			}
		}
	}
	return false
}

// change makes f change a template. It returns the error of f.
func (s *Store) change(id string, f func(*Template) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.templates.all[id]
	if !ok {
		return noTemplate(id)
	}
	t = t.clone()
	if err := f(&t); err != nil {
		return err
	}
	return s.templates.put(id, t)
}

// changeBuild makes f change a build.
func (s *Store) changeBuild(template, id string, f func(*Template, *Build)) error {
	return s.change(template, func(t *Template) error {
		for i := range t.Builds {
			if t.Builds[i].ID == id {
				f(t, &t.Builds[i])
				return nil
			}
		}
		return sandbox.Errorf(sandbox.ErrNotFound, "", "build %q not found", sandbox.Clip(id))
	})
}

// request creates a build of a template, and the template if there is none with this name.
func (s *Store) request(owner, name string, b Build) (Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.findLocked(owner, name)
	if err != nil {
		if n := s.countLocked(owner); owner != "" && n >= maxTemplates {
			return Template{}, sandbox.Errorf(sandbox.ErrQuota, sandbox.ReasonQuota,
				"the tenant has %d templates, which is the most: delete one first", n)
		}
		t = Template{ID: newTemplateID(), Name: name, Owner: owner, Created: b.Requested, Tags: map[string]Assigned{}}
	}
	if len(t.Builds) >= maxBuilds && !dropOldest(&t, b.Requested) {
		return Template{}, sandbox.Errorf(sandbox.ErrBusy, "", "template %s has %d builds that are not over", name, maxBuilds)
	}
	t.Builds = append(t.Builds, b)
	return t, s.templates.put(t.ID, t)
}

func (s *Store) countLocked(owner string) (n int) {
	for _, t := range s.templates.all {
		if t.Owner == owner {
			n++
		}
	}
	return n
}

// maxBuilds is the number of builds stored for a template. Builds with a tag are always kept.
const maxBuilds = 200

// maxWait is the longest time between a build's request and its start. Uploads happen in this time.
const maxWait = 24 * time.Hour

// dropOldest removes the oldest build that has ended without a tag, or never began.
func dropOldest(t *Template, now time.Time) bool {
	for i, b := range t.Builds {
		over := b.Status == Ready || b.Status == Failed || !b.Begun && now.Sub(b.Requested) > maxWait
		if over && !t.hasTag(b.ID) {
			t.Builds = slices.Delete(t.Builds, i, i+1)
			return true
		}
	}
	return false
}

func (t Template) hasTag(build string) bool {
	for _, a := range t.Tags {
		if a.Build == build {
			return true
		}
	}
	return false
}

// assign gives tags to a build, except tags of a build requested later.
func (t *Template) assign(b Build, tags []string, now time.Time) {
	place := func(id string) int {
		return slices.IndexFunc(t.Builds, func(x Build) bool { return x.ID == id })
	}
	for _, tag := range tags {
		if have, ok := t.Tags[tag]; ok && place(have.Build) > place(b.ID) {
			continue
		}
		t.Tags[tag] = Assigned{b.ID, now}
	}
}

func (t Template) String() string { return fmt.Sprintf("%s (%s)", t.Name, t.ID) }
