package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// complete fills in the unset flags of a side.
func (s side) complete(children int) error {
	if s.Pool < 0 {
		s.Pool = children
	}
	if s.Dir == "" {
		self, err := endpoint.Program("forkd")
		if err != nil {
			return err
		}
		s.Dir = filepath.Dir(self)
	}
	var err error
	if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return err
	}
	_, err = programsIn(s.Dir)
	return err
}

// programsIn returns a build's daemon and the programs beside it. Older builds have fewer.
func programsIn(dir string) (names []string, err error) {
	needed := []string{"forkd", "forkd-vmm"}
	for i, name := range append(needed, "forkd-net", "forkd-spawn") {
		_, err := os.Stat(filepath.Join(dir, name))
		switch {
		case err == nil:
			names = append(names, name)
		case i < len(needed) || !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
	}
	return names, nil
}

// images makes the image of each side with that side's build and agent.
func (a *app) images(ctx context.Context, o *compareOptions) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "forkd-compare-")
	if err != nil {
		return func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	made := map[string]string{} // by the build's directory
	for _, s := range o.sides() {
		if s.Image == "" && made[s.Dir] == "" {
			tar := filepath.Join(dir, s.name+".tar")
			a.Note("building image %s with %s", o.recipe, s.Dir)
			if err := a.buildImage(ctx, s.Dir, o.recipe, tar); err != nil {
				return remove, err
			}
			made[s.Dir] = tar
		}
		if s.Image == "" {
			s.Image = made[s.Dir]
		}
	}
	return remove, nil
}

// buildImage makes an image in the user's own store with the given build, and writes it to a tar
// file.
func (a *app) buildImage(ctx context.Context, build, recipe, to string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(build, "forkd"), "image", "build", "--local", findRecipe(recipe))
	cmd.Stderr = a.Err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build image %s with %s: %w", recipe, build, err)
	}
	paths, err := endpoint.DefaultPaths()
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(packImage(f, filepath.Join(paths.Cache, "built", filepath.Base(recipe))), f.Close())
}

// imageMetadata is the first file in an image stream.
const imageMetadata = "image.json"

// packImage writes an image's folder in the format of the API. It does not parse any file, because
// another build may use another format.
func packImage(w io.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	names := []string{imageMetadata}
	for _, e := range entries {
		if e.Name() != imageMetadata {
			names = append(names, e.Name())
		}
	}
	t := tar.NewWriter(w)
	for _, name := range names {
		if err := packFile(t, dir, name); err != nil {
			return fmt.Errorf("pack image: %w", err)
		}
	}
	return t.Close()
}

func packFile(t *tar.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: st.Size(),
		Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

// findRecipe returns a recipe's path as seen by this program. A build in another directory may not
// find it by name.
func findRecipe(name string) string {
	places := []string{name, filepath.Join("recipes", name)}
	if self, err := os.Executable(); err == nil {
		places = append(places, filepath.Join(filepath.Dir(self), "..", "recipes", name))
	}
	for _, p := range places {
		if abs, err := filepath.Abs(p); err == nil {
			if _, err := os.Stat(abs); err == nil {
				return abs
			}
		}
	}
	return name
}

// compareInMachine uploads both builds to the machine, and compares them there.
func (a *app) compareInMachine(ctx context.Context, o *compareOptions) (err error) {
	m, err := appliance.Open(a.flags.NameOfMachine())
	if err != nil {
		return err
	}
	if _, err := m.Start(ctx, appliance.StartOptions{Progress: func(line string) { a.Note("%s ...", line) }}); err != nil {
		return fmt.Errorf("start the machine: %w", err)
	}
	agent, err := m.Agent()
	if err != nil {
		return err
	}
	defer agent.Close()
	name := fmt.Sprintf(".compare-%d", os.Getpid())
	v := visit{
		agent: agent, dir: path.Join("/var/lib/forkd", name), bin: path.Join("/usr", name), there: map[string]string{},
	}
	defer func() { err = errors.Join(err, v.leave(ctx)) }()
	args, err := v.arguments(ctx, a, o)
	if err != nil {
		return err
	}
	res, err := appliance.Run(ctx, agent, appliance.Command{Args: args, Dir: "/", Stdout: a.Out, Stderr: a.Err})
	if err == nil && res.ExitCode != 0 {
		return exit.Code(res.ExitCode)
	}
	return err
}

// visit holds the files of one comparison in the machine.
type visit struct {
	agent *agentclient.Client
	dir   string            // stores and images
	bin   string            // programs; a jailed VMM, which runs as an unprivileged user, can start its own from here
	there map[string]string // uploaded files, by their path on this host
}

// arguments uploads the files for the comparison, and returns the command line to run in the
// machine.
func (v visit) arguments(ctx context.Context, a *app, o *compareOptions) ([]string, error) {
	args := []string{
		path.Join("/usr/bin", "forkd-bench"), "compare", "--host", "--where", string(endpoint.Machine), "--work", v.dir,
		"--bench", string(o.Bench), "--count", strconv.Itoa(o.N), "--rounds", strconv.Itoa(o.Rounds),
		"--memory-mib", strconv.Itoa(o.MemoryMiB), "--recipe", o.Image,
	}
	for _, s := range o.sides() {
		a.Note("sending side %s to the machine", s.name)
		dir, err := v.programs(ctx, s.Dir)
		if err != nil {
			return nil, err
		}
		tar, err := v.put(ctx, s.Image, path.Join(v.dir, s.name+".tar"), 0o600)
		if err != nil {
			return nil, err
		}
		args = append(args, "--"+s.name, dir, "--"+s.name+"-image", tar, "--"+s.name+"-pool", strconv.Itoa(s.Pool))
		for flag, values := range map[string][]string{"-serve": s.Serve, "-env": s.Env} {
			for _, value := range values {
				args = append(args, "--"+s.name+flag, value)
			}
		}
	}
	for flag, set := range map[string]bool{"--json": a.JSON, "--quiet": a.Quiet} {
		if set {
			args = append(args, flag)
		}
	}
	return args, nil
}

// programs uploads a build's programs for a daemon.
func (v visit) programs(ctx context.Context, build string) (dir string, err error) {
	dir = path.Join(v.bin, strconv.Itoa(len(v.there)))
	names, err := programsIn(build)
	if err != nil {
		return "", err
	}
	if err := v.shell(ctx, `mkdir -p -m 755 "$1" "$2"`, v.bin, dir); err != nil {
		return "", err
	}
	for _, name := range names {
		to, err := v.put(ctx, filepath.Join(build, name), path.Join(dir, name), 0o755)
		if err != nil {
			return "", err
		}
		dir = path.Dir(to)
	}
	return dir, nil
}

// put uploads a file, once.
func (v visit) put(ctx context.Context, from, to string, mode os.FileMode) (string, error) {
	if at := v.there[from]; at != "" {
		return at, nil
	}
	f, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := appliance.Upload(ctx, v.agent, to, f, st.Size()); err != nil {
		return "", err
	}
	v.there[from] = to
	return to, v.shell(ctx, `chmod "$1" "$2"`, strconv.FormatUint(uint64(mode), 8), to)
}

// leave ends the comparison's processes, also after an interruption, and removes its files.
func (v visit) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	dirs, err := v.dirs()
	if err != nil {
		return err
	}
	if err := v.shell(ctx, leaveScript, dirs...); err != nil {
		return fmt.Errorf("%s are left in the machine: %w", strings.Join(dirs, " and "), err)
	}
	return nil
}

// leaveScript kills the processes whose program is below one of its arguments, and removes these
// directories. It stops before any action if an argument is not the path of a visit.
const leaveScript = `[ $# -gt 0 ] || exit 64
for d in "$@"; do
case "$d" in /*/.*-[0-9]*) ;; *) exit 64;; esac
done
for p in /proc/[0-9]*; do
exe=$(readlink "$p/exe" 2>/dev/null) || continue
for d in "$@"; do
case "$exe" in "$d"/*) kill -9 "${p#/proc/}" 2>/dev/null;; esac
done
done
for d in "$@"; do
for m in $(grep -o "$d/[^ ]*/debug" /proc/mounts); do umount -l "$m"; done
rm -rf "$d"
done`

// visitDir matches the directories of visits, which may be removed. No other program's directories
// are below one.
var visitDir = regexp.MustCompile(`^/(usr|var/lib/forkd)/\.(compare|peers)-[0-9]+$`)

// dirs returns the visit's directories. It returns an error for any other path, which is a fault of
// the caller.
func (v visit) dirs() (dirs []string, err error) {
	for _, dir := range []string{v.dir, v.bin} {
		if dir == "" {
			continue // a visit may have no programs
		}
		if !visitDir.MatchString(dir) {
			return nil, fmt.Errorf("%q is not a directory of a comparison: nothing was ended or removed", dir)
		}
		dirs = append(dirs, dir)
	}
	if len(dirs) == 0 {
		return nil, errors.New("the comparison has no directory: nothing was ended or removed")
	}
	return dirs, nil
}

func (v visit) shell(ctx context.Context, script string, args ...string) error {
	res, err := appliance.Run(ctx, v.agent, appliance.Command{
		Args: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Dir: "/", Stdout: io.Discard, Stderr: io.Discard,
	})
	if err == nil && res.ExitCode != 0 {
		err = errors.New(res.Status)
	}
	return err
}
