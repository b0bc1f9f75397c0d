package build

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Request is a client's request to begin a build.
type Request struct {
	// FromImage names an image of this server or of a registry. If it and FromTemplate are empty, it is base.
	FromImage string `json:"fromImage"`
	// FromTemplate names the template to build on. If set, FromImage is ignored.
	FromTemplate string `json:"fromTemplate"`
	// Registry has the credentials for the registry of FromImage.
	Registry *credentials `json:"fromImageRegistry"`
	Force    bool         `json:"force"` // ignore cached layers of all steps
	Steps    []Step       `json:"steps"` // in order, at most 500
	// StartCmd starts after the steps and keeps running in every clone. It may be empty.
	StartCmd string `json:"startCmd"`
	// ReadyCmd is repeated until it succeeds. The snapshot is made after that. It may be empty.
	ReadyCmd string `json:"readyCmd"`
}

// Step is one instruction.
type Step struct {
	// Type is RUN, COPY, ENV, WORKDIR or USER, in any case.
	Type string `json:"type"`
	// Args depend on Type. RUN has a command and may have a user.
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"` // names the upload of a COPY, which requires it
	Force     bool     `json:"force"`     // ignore cached layers from this step on
}

// Kinds of steps.
const (
	stepRun     = "RUN"
	stepCopy    = "COPY"
	stepEnv     = "ENV"
	stepWorkdir = "WORKDIR"
	stepUser    = "USER"
)

// Names of steps without a number, as clients know them.
const (
	baseStep     = "base"
	finalizeStep = "finalize"
)

const (
	maxSteps = 500
	maxMode  = 0o7777
)

// Base is the start of a build: a template's name, or the tag of a snapshot or image.
type base struct {
	name  string
	image bool // the client requested an image
	// ref is an image of a registry, or nil.
	ref *Reference
	// hub is the image of a registry if no image here has the name. It may be nil.
	hub *Reference
}

// plan is a checked Request.
type plan struct {
	base   base
	force  bool // ignore the cache
	groups []group
	steps  int
	start  string
	ready  string
}

// group is a list of steps that share a layer: steps that only change how programs run, and the
// following step that changes files.
type group struct {
	first int // number of the first step, from 1
	steps []Step
	force bool
}

// planOf checks a request.
func planOf(ctx context.Context, r Request, registry Registry) (plan, error) {
	p := plan{force: r.Force, steps: len(r.Steps), start: r.StartCmd, ready: r.ReadyCmd}
	var err error
	if p.base, err = baseOf(ctx, r, registry); err != nil {
		return plan{}, err
	}
	if len(r.Steps) > maxSteps {
		return plan{}, sandbox.Errorf(sandbox.ErrInvalid, "", "%d steps, want at most %d", len(r.Steps), maxSteps)
	}
	g := group{first: 1}
	for i, s := range r.Steps {
		s.Type = strings.ToUpper(s.Type)
		if err := s.check(); err != nil {
			return plan{}, sandbox.Errorf(sandbox.ErrInvalid, "", "step %d: %w", i+1, err)
		}
		g.steps, g.force = append(g.steps, s), g.force || s.Force
		if s.Type == stepRun || s.Type == stepCopy {
			p.groups = append(p.groups, g)
			g = group{first: i + 2}
		}
	}
	p.groups = append(p.groups, g) // the remaining steps belong to the end
	return p, nil
}

// baseOf distinguishes this server's images from images of registries.
func baseOf(ctx context.Context, r Request, registry Registry) (base, error) {
	if r.FromTemplate != "" {
		if _, _, err := ParseName(r.FromTemplate); err != nil {
			return base{}, err
		}
		return base{name: r.FromTemplate}, nil
	}
	image := strings.TrimSuffix(r.FromImage, ":latest")
	for _, prefix := range []string{"docker.io/", "e2bdev/"} {
		image = strings.TrimPrefix(image, prefix)
	}
	plain := r.FromImage == "" || aName.MatchString(strings.ToLower(image))
	if registry != nil && (r.Registry != nil || !plain) {
		return refOf(ctx, r, registry)
	}
	out := base{name: image, image: true}
	switch {
	case r.Registry != nil, !plain:
		return base{}, sandbox.Errorf(sandbox.ErrInvalid, "",
			"image '%s' would come from a registry, which this server does not fetch from: "+
				"use fromTemplate with a template that is here, fromBaseImage, or an image that was made with `forkd image build`",
			sandbox.Clip(r.FromImage))
	case image == "", image == "base":
		out.name = "base"
	case image == "code-interpreter":
		out.name = "code-interpreter-v1"
	case registry != nil:
		out.hub = &Reference{Ref: image + ":latest"}
	}
	return out, nil
}

// refOf returns a base from a registry.
func refOf(ctx context.Context, r Request, registry Registry) (base, error) {
	ref, err := r.Registry.reference(r.FromImage)
	if err == nil {
		err = registry.Check(ctx, ref)
	}
	return base{name: r.FromImage, image: true, ref: &ref}, err
}

// check checks a step as far as possible without running it.
func (s Step) check() error {
	wrong := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.ErrInvalid, "", format, args...)
	}
	if slices.ContainsFunc(s.Args, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return wrong("%s: an argument has a zero byte", sandbox.Clip(s.Type))
	}
	n := len(s.Args)
	switch s.Type {
	case stepRun:
		if n < 1 || s.Args[0] == "" {
			return wrong("RUN requires a command argument")
		}
	case stepCopy:
		switch {
		case n < 2 || s.Args[0] == "" || s.Args[1] == "":
			return wrong("COPY requires a local path and a container path argument")
		case !aHash.MatchString(s.FilesHash):
			return wrong("COPY requires files hash to be set")
		case s.mode() > maxMode:
			return wrong("COPY: mode %q: want an octal number", sandbox.Clip(s.Args[3]))
		}
	case stepEnv:
		if n == 0 || n%2 != 0 {
			return wrong("ENV requires both a key and value arguments")
		}
		for i := 0; i < n; i += 2 {
			if s.Args[i] == "" || strings.Contains(s.Args[i], "=") {
				return wrong("ENV: %q is no name of a variable", sandbox.Clip(s.Args[i]))
			}
		}
	case stepWorkdir:
		if n < 1 || s.Args[0] == "" {
			return wrong("WORKDIR requires a path argument")
		}
	case stepUser:
		if n < 1 || s.Args[0] == "" {
			return wrong("USER requires a username argument")
		}
	default:
		return wrong("%q is no step that this server knows", sandbox.Clip(s.Type))
	}
	return nil
}

// arg returns an argument, or "".
func (s Step) arg(i int) string {
	if i < len(s.Args) {
		return s.Args[i]
	}
	return ""
}

// mode returns the mode of a COPY, or -1 to keep the files' modes. A text that is not a number
// gives a mode that is too large.
func (s Step) mode() int64 {
	if s.arg(3) == "" {
		return -1
	}
	m, err := strconv.ParseUint(s.arg(3), 8, 32)
	if err != nil {
		return maxMode + 1
	}
	return int64(m)
}

// title returns the step as shown in a log.
func (s Step) title() string {
	args := s.Args
	switch s.Type {
	case stepRun:
		args = args[:1]
	case stepCopy:
		args = args[:2]
	}
	return s.Type + " " + strings.Join(args, " ")
}
