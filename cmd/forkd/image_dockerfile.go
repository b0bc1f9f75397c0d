//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/imagebuild"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/ociimage"
)

// dockerfiles has the commands about Dockerfiles.
type dockerfiles struct{ app *app }

// dockerfileOptions are the flags of a build from a Dockerfile.
type dockerfileOptions struct {
	file, tag, target string
	args              []string
	noCache           bool
	net               string
	memory, vcpus     int
}

func (o *dockerfileOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "build from the Dockerfile `FILE`; - is standard input "+
		"(default: PATH/Dockerfile)")
	f.StringVarP(&o.tag, "tag", "t", "", "name the snapshot `TAG` (default: the folder's name)")
	f.StringVar(&o.target, "target", "", "build the stage `NAME` (default: the last)")
	f.StringArrayVar(&o.args, "build-arg", nil, "set the build argument `NAME=VALUE`; may be repeated")
	f.BoolVar(&o.noCache, "no-cache", false, "run all steps again")
	f.StringVar(&o.net, "net", "public", "network `POLICY` of the steps, none or public")
	f.IntVar(&o.memory, "memory", 0, "memory of the sandboxes in `MIB` (default: the base image's)")
	f.IntVar(&o.vcpus, "vcpus", 0, "give the sandboxes `N` virtual CPUs (default: the base image's)")
}

// dockerfileFlags are the names of the flags that only a Dockerfile has.
var dockerfileFlags = []string{"file", "tag", "target", "build-arg", "no-cache", "net", "memory", "vcpus"}

// isDockerfile reports whether a build is of a Dockerfile.
func (o *dockerfileOptions) isDockerfile(path string) bool {
	if o.file != "" {
		return true
	}
	if _, err := os.Stat(filepath.Join(path, image.RecipeFile)); err == nil {
		return false
	}
	st, err := os.Stat(filepath.Join(path, "Dockerfile"))
	return err == nil && st.Mode().IsRegular()
}

var notInTags = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// buildDockerfile builds the snapshot of a Dockerfile with a build context.
func (a dockerfiles) build(ctx context.Context, dir string, o dockerfileOptions, stdin io.Reader) error {
	if o.net != string(api.NetNone) && o.net != string(api.NetPublic) {
		return exit.UsageError{Err: fmt.Errorf("--net is %q, want none or public", o.net)}
	}
	args, err := buildArgs(o.args)
	if err != nil {
		return err
	}
	if st, err := os.Stat(dir); err != nil {
		return codedError{err, api.CodeNotFound}
	} else if !st.IsDir() {
		return exit.UsageError{Err: fmt.Errorf("%s is not a folder: name the folder with the files for COPY", dir)}
	}
	file, name, err := o.parse(dir, stdin)
	if err != nil {
		return dockerfileError(err)
	}
	if o.tag == "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		o.tag = strings.Trim(notInTags.ReplaceAllString(filepath.Base(abs), "-"), "-")
	}
	files, err := imagebuild.OpenContext(dir, name)
	if err != nil {
		return err
	}
	defer files.Close()
	return a.app.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		report := &buildReport{p: &a.app.Printer}
		b := imagebuild.Builder{
			Client: c, File: file, Context: files, Target: o.target, Args: args, Tag: o.tag, NoCache: o.noCache,
			Net: api.Net(o.net), MemoryMiB: o.memory, VCPUs: o.vcpus, Report: report,
			Image: func(ctx context.Context, ref string) (api.Image, error) { return a.baseImage(ctx, c, ref) },
		}
		info, err := b.Build(ctx)
		report.end()
		switch {
		case err != nil:
			return dockerfileError(err)
		case a.app.JSON:
			return a.app.Value(info)
		}
		return a.app.Line("%s", info.Tag)
	})
}

// parse reads the Dockerfile. It also returns the file's path.
func (o *dockerfileOptions) parse(dir string, stdin io.Reader) (*imagebuild.File, string, error) {
	name, shown := o.file, o.file
	if name == "" {
		name = filepath.Join(dir, "Dockerfile")
		shown = "Dockerfile"
	}
	var r io.Reader = stdin
	if name == "-" {
		shown = "standard input"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, name, codedError{fmt.Errorf("read Dockerfile: %w", err), api.CodeNotFound}
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, imagebuild.MaxFile+1))
	if err != nil {
		return nil, name, fmt.Errorf("read %s: %w", shown, err)
	}
	file, err := imagebuild.Parse(shown, text)
	return file, name, err
}

// buildArgs parses NAME=VALUE, or NAME for a variable of this process.
func buildArgs(given []string) (map[string]string, error) {
	out := map[string]string{}
	for _, g := range given {
		name, value, ok := strings.Cut(g, "=")
		if name == "" {
			return nil, exit.UsageError{Err: fmt.Errorf("--build-arg %q: want NAME=VALUE", g)}
		}
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				continue
			}
		}
		out[name] = value
	}
	return out, nil
}

// baseImage returns the daemon's image for a FROM. A plain name is an image of the daemon, otherwise
// of the default registry, as in Docker.
func (a dockerfiles) baseImage(ctx context.Context, c *client.Client, ref string) (api.Image, error) {
	if image.CheckName(ref) == nil {
		img, err := c.Image(ctx, ref)
		if err == nil || !client.IsNotFound(err) {
			return img, err
		}
		ref += ":latest"
	}
	if !ociimage.IsReference(ref) {
		ref += ":latest"
	}
	return containers(a).ensurePulled(ctx, c, ref)
}

func dockerfileError(err error) error {
	var failed *imagebuild.FailedError
	if errors.Is(err, imagebuild.ErrDockerfile) || errors.As(err, &failed) {
		return codedError{err, api.CodeInvalid}
	}
	return err
}

// buildReport prints the steps of a build, with the output of their programs.
type buildReport struct {
	p       *ui.Printer
	partial []byte // of a line
}

func (r *buildReport) Step(number, all int, text string) {
	r.p.Note("[%d/%d] %s", number, all, ui.CleanLines(text))
}

func (r *buildReport) Done(took time.Duration) {
	r.end()
	if took == 0 {
		r.p.Note("      cached")
		return
	}
	r.p.Note("      done in %.1f s", took.Seconds())
}

func (r *buildReport) Output(b []byte) {
	r.partial = append(r.partial, b...)
	for {
		line, rest, ok := bytes.Cut(r.partial, []byte("\n"))
		if !ok && len(r.partial) < 4096 {
			return
		}
		r.line(line)
		r.partial = rest
	}
}

// end prints an unfinished line.
func (r *buildReport) end() {
	if len(r.partial) > 0 {
		r.line(r.partial)
		r.partial = nil
	}
}

func (r *buildReport) line(b []byte) {
	if i := bytes.LastIndexByte(bytes.TrimRight(b, "\r"), '\r'); i >= 0 { // a progress bar
		b = b[i+1:]
	}
	r.p.Note("      %s", ui.CleanLines(strings.TrimRight(string(b), "\r")))
}

func (r *buildReport) Warn(text string) { r.p.Note("forkd: %s", ui.CleanLines(text)) }
