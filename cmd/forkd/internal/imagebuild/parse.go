package imagebuild

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/forkd/forkd/internal/leaf/stopsignal"
)

// Limits of a Dockerfile.
const (
	MaxFile  = 1 << 20 // bytes
	maxSteps = 1000
)

// ErrDockerfile is wrapped by errors of the Dockerfile itself.
var ErrDockerfile = errors.New("bad Dockerfile")

// File is a parsed Dockerfile.
type File struct {
	Name   string // for errors
	stages []instructions.Stage
	args   []instructions.ArgCommand // before the first FROM
	escape rune
}

// Parse parses a Dockerfile, and refuses what a build does not support. name is used in errors,
// which have its lines.
func Parse(name string, text []byte) (*File, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%w: %s has %d bytes, want at most %d", ErrDockerfile, name, len(text), MaxFile)
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, located(name, err, nil)
	}
	f := &File{Name: name, escape: tree.EscapeToken}
	if f.stages, f.args, err = instructions.Parse(tree.AST, nil); err != nil {
		return nil, located(name, err, nil)
	}
	if len(f.stages) == 0 {
		return nil, fmt.Errorf("%w: %s has no FROM", ErrDockerfile, name)
	}
	steps := 0
	for i, s := range f.stages {
		steps += len(s.Commands)
		if err := f.checkStage(i, s); err != nil {
			return nil, err
		}
	}
	if steps > maxSteps {
		return nil, fmt.Errorf("%w: %s has %d instructions, want at most %d", ErrDockerfile, name, steps, maxSteps)
	}
	return f, nil
}

// located adds the file and the line to an error.
func located(name string, err error, where []parser.Range) error {
	var at *parser.LocationError
	if errors.As(err, &at) && len(at.Locations) > 0 {
		where = at.Locations[0]
	}
	text := err.Error()
	if len(where) == 0 {
		return fmt.Errorf("%w: %s: %s", ErrDockerfile, name, text)
	}
	text = strings.TrimPrefix(text, fmt.Sprintf("dockerfile parse error on line %d: ", where[0].Start.Line))
	return fmt.Errorf("%w: %s:%d: %s", ErrDockerfile, name, where[0].Start.Line, text)
}

func (f *File) refuse(c instructions.Command, format string, args ...any) error {
	return located(f.Name, fmt.Errorf(format, args...), c.Location())
}

// checkStage refuses instructions that a build does not support.
func (f *File) checkStage(i int, s instructions.Stage) error {
	bad := func(format string, args ...any) error {
		return located(f.Name, fmt.Errorf(format, args...), s.Location)
	}
	switch {
	case s.Platform != "" && s.Platform != "linux/amd64":
		return bad("FROM --platform=%s is not supported: sandboxes are linux/amd64", s.Platform)
	case s.BaseName == "scratch":
		return bad("FROM scratch is not supported: a sandbox needs files to boot")
	}
	for _, c := range s.Commands {
		if err := f.checkCommand(i, c); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) checkCommand(stage int, c instructions.Command) error {
	switch c := c.(type) {
	case *instructions.RunCommand:
		return f.checkRun(c)
	case *instructions.CopyCommand:
		if c.Parents {
			return f.refuse(c, "COPY --parents is not supported")
		}
		if from := c.From; from != "" {
			if n, err := strconv.Atoi(from); err == nil && n >= stage {
				return f.refuse(c, "COPY --from=%d: that stage is not above this one", n)
			}
		}
		return f.checkMode(c, c.Chmod)
	case *instructions.AddCommand:
		if c.Checksum != "" || c.KeepGitDir != nil {
			return f.refuse(c, "ADD of URLs and repositories is not supported: fetch them by RUN")
		}
		for _, source := range c.SourcePaths {
			if strings.Contains(source, "://") || strings.HasPrefix(source, "git@") {
				return f.refuse(c, "ADD of %s is not supported: fetch it by RUN", source)
			}
		}
		return f.checkMode(c, c.Chmod)
	case *instructions.StopSignalCommand:
		if !strings.Contains(c.Signal, "$") { // otherwise it is checked when its variables are known
			return f.checkSignal(c)
		}
	case *instructions.HealthCheckCommand:
		_, err := Config{Healthcheck: healthOf(c)}.healthcheck()
		if err != nil {
			return f.refuse(c, "HEALTHCHECK: %v", err)
		}
	case *instructions.OnbuildCommand:
		return f.refuse(c, "ONBUILD is not supported")
	}
	return nil
}

func (f *File) checkSignal(c instructions.Command) error {
	s, ok := c.(*instructions.StopSignalCommand)
	if !ok {
		return nil
	}
	if _, err := stopsignal.Parse(s.Signal); err != nil {
		return f.refuse(c, "STOPSIGNAL %.40q: %v", s.Signal, err)
	}
	return nil
}

func (f *File) checkMode(c instructions.Command, mode string) error {
	if mode == "" || strings.Contains(mode, "$") {
		return nil
	}
	if _, err := strconv.ParseUint(mode, 8, 12); err != nil {
		return f.refuse(c, "--chmod=%s is not supported: want octal permissions, such as 0755", mode)
	}
	return nil
}

func (f *File) checkRun(c *instructions.RunCommand) error {
	// The parser reads mounts when it expands variables. The build expands them again with values.
	if err := c.Expand(func(word string) (string, error) { return word, nil }); err != nil {
		return f.refuse(c, "%v", err)
	}
	for _, m := range instructions.GetMounts(c) {
		if m.Type != instructions.MountTypeCache && m.Type != instructions.MountTypeTmpfs {
			return f.refuse(c, "RUN --mount=type=%s is not supported", m.Type)
		}
	}
	for _, flag := range c.FlagsUsed {
		if flag != "mount" {
			return f.refuse(c, "RUN --%s is not supported", flag)
		}
	}
	return nil
}

// target returns the index of the stage to build: the named one, or the last.
func (f *File) target(name string) (int, error) {
	if name == "" {
		return len(f.stages) - 1, nil
	}
	i := f.stage(name, len(f.stages))
	if i < 0 {
		var names []string
		for _, s := range f.stages {
			if s.Name != "" {
				names = append(names, s.Name)
			}
		}
		return 0, fmt.Errorf("%w: %s has no stage %q; it has %s", ErrDockerfile, f.Name, name,
			strings.Join(append(names, fmt.Sprintf("the numbers 0 to %d", len(f.stages)-1)), ", "))
	}
	return i, nil
}

// stage returns the index of a stage above a limit by its name or number, or -1.
func (f *File) stage(name string, limit int) int {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < limit {
		return n
	}
	return slices.IndexFunc(f.stages[:limit], func(s instructions.Stage) bool {
		return s.Name != "" && strings.EqualFold(s.Name, name)
	})
}
