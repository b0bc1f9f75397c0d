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

// Status of a build, as clients know them.
type Status string

// The order in which they follow; one of the last two is the end.
const (
	Waiting  Status = "waiting"
	Building Status = "building"
	Ready    Status = "ready"
	Failed   Status = "error"
)

// Reason is why a build failed.
type Reason struct {
	Message string  `json:"message"`
	Step    string  `json:"step,omitempty"`
	Entries []Entry `json:"logEntries,omitempty"`
}

// Build is one attempt to make a template.
type Build struct {
	ID        string    `json:"id"`
	Tags      []string  `json:"tags"` // that it gets when it is ready
	Requested time.Time `json:"requested"`
	Finished  time.Time `json:"finished,omitzero"`
	CPUs      int       `json:"cpus,omitempty"` // that were asked for; 0: the base's
	MemoryMiB int       `json:"memory_mib,omitempty"`
	Status    Status    `json:"status"`
	Reason    *Reason   `json:"reason,omitempty"`
	// Snapshot is the tag of what sandboxes are forked from.
	Snapshot string `json:"snapshot,omitempty"`
	// Context is how its steps said that programs run: those of builds on top of it do so, too.
	Context Context `json:"context,omitzero"`
	// Layers are the keys of the layers below it and its own.
	Layers []string `json:"layers,omitempty"`
	// Sandbox is the one in which a step runs now.
	Sandbox string `json:"sandbox,omitempty"`
	// Begun: its steps have been sent. A build is begun once.
	Begun bool `json:"begun,omitempty"`
}

// Assigned is the build that a tag stands for.
type Assigned struct {
	Build string    `json:"build"`
	At    time.Time `json:"at"`
}

// Template is a name, its builds and its tags. It is a copy: changing it changes nothing.
type Template struct {
	ID      string              `json:"id"`
	Name    string              `json:"name"`
	Owner   string              `json:"owner,omitempty"` // tenant; empty: the operator
	Created time.Time           `json:"created"`
	Tags    map[string]Assigned `json:"tags"`
	Builds  []Build             `json:"builds"`
}

func (t Template) clone() Template {
	t.Tags, t.Builds = maps.Clone(t.Tags), slices.Clone(t.Builds)
	return t
}

// Build finds a build.
func (t Template) Build(id string) (Build, bool) {
	for _, b := range t.Builds {
		if b.ID == id {
			return b, true
		}
	}
	return Build{}, false
}

// Tagged is the build of a tag; empty: of the default one.
func (t Template) Tagged(tag string) (Build, bool) {
	a, ok := t.Tags[cmp.Or(tag, DefaultTag)]
	if !ok {
		return Build{}, false
	}
	return t.Build(a.Build)
}

// layer is a snapshot that a step left.
type layer struct {
	Tag   string    `json:"tag"`
	Below string    `json:"below,omitempty"` // the tag of the snapshot that it is built on
	Owner string    `json:"owner,omitempty"`
	Made  time.Time `json:"made"`
	Used  time.Time `json:"used"`
	// Context is how programs of the steps that follow run.
	Context Context `json:"context,omitzero"`
	// Pending: its snapshot was about to be made. If that is all that is known, it is to go.
	Pending bool `json:"pending,omitempty"`
}

// Store is what is kept of builds.
type Store struct {
	dir string

	mu        sync.Mutex // guards what follows, and orders writes
	templates table[Template]
	layers    table[layer]
	// outdated are tags of layers that others have replaced under their keys.
	outdated table[layer]
	pending  map[string]pending // uploads under way, by owner
	reserve  int64

	work *fair // turns of checks of archives
}

// OpenStore reads what is below dir, which is made if it is missing. What is none of ours, or
// damaged, is left and named in skipped.
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

// noTemplate is the error for one that is not there, or another's.
func noTemplate(name string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, "", "template '%s' not found", sandbox.Clip(name))
}

// Template finds one by its id or its name, without a tag.
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

// All are the templates of an owner, oldest first.
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

// Find is the template and the build that a name with a tag means, or an id.
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

// IsLayer reports whether a snapshot is a build's.
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

// change has f change a template. What f fails with is the error.
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

// changeBuild has f change a build.
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

// request makes a build of a template, which is made if there is none of that name.
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

// maxBuilds are remembered of a template; those that a tag stands for do not go.
const maxBuilds = 200

// maxWait is for how long a build may be requested and not begun: uploads come in between.
const maxWait = 24 * time.Hour

// dropOldest forgets the oldest build that is over and has no tag, or never began.
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

// assign gives tags to a build, but those that a build has that was asked for later.
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
