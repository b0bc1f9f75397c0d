package imagebuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/snapshots"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// Report receives the progress of a build. Its methods are called by one goroutine at a time.
type Report interface {
	// Step announces instruction number of all, with its text.
	Step(number, all int, text string)
	// Done ends the step. It was cached if took is 0.
	Done(took time.Duration)
	// Output is output of the step's program.
	Output([]byte)
	Warn(text string)
}

// Builder builds one Dockerfile. All fields must be set unless they say otherwise.
type Builder struct {
	Client  *client.Client
	File    *File
	Context *Context
	Target  string            // name or number of the stage; empty: the last
	Args    map[string]string // build arguments
	Tag     string            // of the snapshot
	NoCache bool              // run all steps
	Net     api.Net           // network policy of the steps; empty: public
	// MemoryMiB and VCPUs are the shape of the sandboxes; 0: the image's.
	MemoryMiB, VCPUs int
	// Image returns the daemon's image with a name or a reference, and pulls it if necessary.
	Image  func(ctx context.Context, ref string) (api.Image, error)
	Report Report

	find     func(ctx context.Context, name string) (base, error) // resolves a base
	payloads []*payload
	leases   leases
	number   int // of the current step
	all      int
}

// Tries to end a sandbox, and the pause after each.
const (
	killTries = 3
	killPause = 100 * time.Millisecond
)

// Build builds the target, and makes its snapshot. It replaces a snapshot with the same tag.
func (b *Builder) Build(ctx context.Context) (api.SnapshotInfo, error) {
	defer func() {
		for _, p := range b.payloads {
			p.remove()
		}
	}()
	b.find = b.base
	b.leases.client = b.Client
	renewing, stop := context.WithCancel(ctx)
	defer stop()
	go b.leases.renew(renewing)
	target, err := b.plan(ctx)
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	stages := target.needs(map[*stage]bool{})
	for _, s := range stages {
		b.all += len(s.layers)
	}
	for _, s := range stages {
		if err := b.stage(ctx, s); err != nil {
			return api.SnapshotInfo{}, err
		}
	}
	return b.finish(ctx, target)
}

// base returns the base with a name: a snapshot or an image of the daemon, or a reference.
func (b *Builder) base(ctx context.Context, name string) (base, error) {
	if !strings.ContainsAny(name, "/:@.") {
		info, err := b.Client.Snapshot(ctx, name)
		if err == nil {
			key := keyOf("snapshot", name, info.ContentHash, info.CreatedAtUnix)
			c, err := b.configOf(ctx, name)
			return base{tag: name, key: key, cfg: c.Config}, err
		}
		if !client.IsNotFound(err) {
			return base{}, err
		}
	}
	img, err := b.Image(ctx, name)
	if err != nil {
		return base{}, err
	}
	return baseOf(img, b.MemoryMiB, b.VCPUs), nil
}

// stage makes the snapshot of a stage.
func (b *Builder) stage(ctx context.Context, s *stage) error {
	start, first, err := b.cached(ctx, s)
	if err != nil {
		return err
	}
	for _, l := range s.layers[:first] {
		b.number++
		b.Report.Step(b.number, b.all, l.text)
		b.Report.Done(0)
	}
	s.tag = start
	if first == len(s.layers) {
		return nil
	}
	id, err := b.fork(ctx, start, b.Net)
	if err != nil {
		return err
	}
	defer b.kill(ctx, id)
	for i, l := range s.layers[first:] {
		b.number++
		b.Report.Step(b.number, b.all, l.text)
		began := time.Now()
		if err := b.layer(ctx, id, l); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", b.File.Name, l.cmd.Location()[0].Start.Line, l.text, err)
		}
		_, folder := l.cmd.(*instructions.WorkdirCommand)
		if last := first+i == len(s.layers)-1; last || !folder {
			if err := b.save(ctx, id, tagOf(l.key)); err != nil {
				return err
			}
			s.tag = tagOf(l.key)
		}
		b.Report.Done(max(time.Since(began), 1))
	}
	return nil
}

// cached returns the snapshot of the last layer that exists, and the number of the next layer.
func (b *Builder) cached(ctx context.Context, s *stage) (tag string, next int, err error) {
	for i := len(s.layers) - 1; i >= 0 && !b.NoCache; i-- {
		info, err := b.Client.Snapshot(ctx, tagOf(s.layers[i].key))
		switch {
		case err == nil && info.Status == api.SnapshotReady && len(info.Damaged) == 0:
			return info.Tag, i + 1, nil
		case err != nil && !client.IsNotFound(err):
			return "", 0, err
		}
	}
	if s.above != nil {
		return s.above.tag, 0, nil
	}
	return s.base.tag, 0, b.ensure(ctx, s.base)
}

// ensure makes the snapshot of a base, if it does not exist.
func (b *Builder) ensure(ctx context.Context, base base) error {
	info, err := b.Client.Snapshot(ctx, base.tag)
	switch {
	case err == nil && info.Status == api.SnapshotReady && !torn(info):
		return nil
	case err != nil && !client.IsNotFound(err), base.image == "":
		return err
	case err == nil && info.Status == api.SnapshotWriting:
		return snapshots.AwaitReady(ctx, b.Client, base.tag)
	case err == nil:
		if err := b.dropTorn(ctx, base.tag); err != nil {
			return err
		}
	}
	b.Report.Output(fmt.Appendf(nil, "boot image %s ...\n", base.image))
	_, err = b.Client.CreateSnapshot(ctx, api.CreateSnapshotRequest{
		Tag: base.tag, Image: base.image, MemoryMiB: b.MemoryMiB, VCPUs: b.VCPUs,
	}, nil)
	if client.CodeOf(err) == api.CodeConflict { // another build began at the same time
		return snapshots.AwaitReady(ctx, b.Client, base.tag)
	}
	return err
}

func (b *Builder) fork(ctx context.Context, tag string, net api.Net) (string, error) {
	req := api.CreateSandboxesRequest{SnapshotTag: tag, Net: net}
	req.TTLSecs = life.Seconds()
	res, err := b.Client.Fork(ctx, req)
	if err != nil {
		return "", err
	}
	b.leases.add(res.Sandboxes[0].ID)
	return res.Sandboxes[0].ID, nil
}

// kill ends a sandbox, even if the build was interrupted. It tries again, because a sandbox that is left behind keeps
// its snapshot in use.
func (b *Builder) kill(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	b.leases.drop(id)
	var err error
	for range killTries {
		if err = b.Client.Kill(ctx, id); err == nil || client.IsNotFound(err) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(killPause):
		}
	}
	b.Report.Warn(fmt.Sprintf("sandbox %s is left behind, and ends within %s: %v", id, life, err))
}

// save makes a snapshot of a sandbox. Another build may have made the same layer meanwhile.
func (b *Builder) save(ctx context.Context, id, tag string) error {
	if b.NoCache {
		err := b.Client.DeleteSnapshot(ctx, tag, client.DeleteOptions{})
		if err != nil && !client.IsNotFound(err) && client.CodeOf(err) != api.CodeConflict {
			return err
		}
	}
	branch := func() error {
		_, err := b.Client.Branch(ctx, id, api.BranchRequest{Tag: tag, Net: api.NetNone})
		return err
	}
	err := branch()
	if client.CodeOf(err) != api.CodeConflict {
		return err
	}
	info, missing := b.Client.Snapshot(ctx, tag)
	switch {
	case missing != nil:
		return err
	case torn(info):
		if err := b.dropTorn(ctx, tag); err != nil {
			return err
		}
		return branch()
	}
	return snapshots.AwaitReady(ctx, b.Client, tag)
}

// torn reports whether a snapshot lost its content, as in a crash of the host.
func torn(info api.SnapshotDetail) bool {
	return info.Status == api.SnapshotFailed || len(info.Damaged) > 0
}

// dropTorn deletes the snapshot of a layer that lost its content.
func (b *Builder) dropTorn(ctx context.Context, tag string) error {
	b.Report.Warn(fmt.Sprintf("snapshot %s is damaged and is made again", tag))
	err := b.Client.DeleteSnapshot(ctx, tag, client.DeleteOptions{})
	if err != nil && !client.IsNotFound(err) {
		return fmt.Errorf("replace damaged snapshot %s: %w", tag, err)
	}
	return nil
}

// layer runs an instruction in a sandbox.
func (b *Builder) layer(ctx context.Context, id string, l layer) error {
	switch l.cmd.(type) {
	case *instructions.RunCommand:
		return b.run(ctx, id, l)
	case *instructions.WorkdirCommand:
		return b.Client.MakeDir(ctx, id, l.dest, "root")
	}
	if l.from != nil {
		p, err := b.fetch(ctx, l)
		if p != nil {
			defer p.remove()
		}
		if err != nil {
			return err
		}
		l.files = p
	}
	return b.copy(ctx, id, l)
}

// output passes a program's output on.
type output struct{ to Report }

func (o output) Write(p []byte) (int, error) {
	o.to.Output(p)
	return len(p), nil
}

// Scripts around a RUN with cache mounts: content that the command puts there does not stay.
const (
	beforeCaches = `for d; do mkdir -p "$d" && { [ -n "$(ls -A "$d")" ] || : > "$d/.forkd-cache"; }; done`
	afterCaches  = `for d; do if [ -e "$d/.forkd-cache" ]; then rm -rf "$d" && mkdir -p "$d"; fi; done`
)

func (b *Builder) run(ctx context.Context, id string, l layer) error {
	user, _, _ := strings.Cut(l.cfg.User, ":")
	if user == "" {
		user = "root"
	}
	if err := b.script(ctx, id, beforeCaches, l.caches); err != nil {
		return err
	}
	st, err := b.Client.ExecStream(ctx, id, client.ExecOptions{
		Args: l.argv, Env: l.env, Cwd: l.cfg.abs("."), User: user, Stdout: output{b.Report}, Stderr: output{b.Report},
	})
	switch {
	case err != nil:
		return err
	case st.KilledBy != "":
		return errors.New(st.KilledBy)
	case st.ExitCode != 0:
		return &FailedError{st.ExitCode}
	}
	return b.script(ctx, id, afterCaches, l.caches)
}

// FailedError is the failure of a command of the Dockerfile.
type FailedError struct{ Code int }

func (e *FailedError) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", e.Code)
}

// script runs a script as root with these arguments, if there are any.
func (b *Builder) script(ctx context.Context, id, script string, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return b.root(ctx, id, append([]string{"/bin/sh", "-c", script, "sh"}, args...))
}

func (b *Builder) root(ctx context.Context, id string, args []string) error {
	r, err := b.Client.Exec(ctx, id, api.ExecRequest{Args: args, User: "root"})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("%s: %s", args[0], strings.TrimSpace(r.Stderr))
	}
	return err
}

// fetch copies the sources of a COPY --from to this host.
func (b *Builder) fetch(ctx context.Context, l layer) (*payload, error) {
	if l.from.tag == "" {
		if err := b.ensure(ctx, l.from.base); err != nil {
			return nil, err
		}
		l.from.tag = l.from.base.tag
	}
	id, err := b.fork(ctx, l.from.tag, api.NetNone)
	if err != nil {
		return nil, err
	}
	defer b.kill(ctx, id)
	p, err := newPayload()
	if err != nil {
		return nil, err
	}
	for _, source := range l.source {
		if err := b.fetchOne(ctx, id, p, l, source); err != nil {
			return p, fmt.Errorf("%s of %s: %w", source, l.from.name, err)
		}
	}
	if l.mode != 0 {
		return p, p.chmod(l.mode)
	}
	return p, nil
}

func (b *Builder) fetchOne(ctx context.Context, id string, p *payload, l layer, source string) error {
	tmp, err := newPayload()
	if err != nil {
		return err
	}
	defer tmp.remove()
	got := filepath.Join(tmp.dir, "got")
	if err := b.Client.CopyFrom(ctx, id, path.Join("/", source), got, client.CopyOptions{User: "root"}); err != nil {
		return err
	}
	st, err := os.Lstat(got)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		p.single = len(l.source) == 1
		return os.Rename(got, filepath.Join(p.dir, path.Base(source)))
	}
	names, err := (&payload{dir: got}).top()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(got, name), filepath.Join(p.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// copy puts the files of a payload into a sandbox.
func (b *Builder) copy(ctx context.Context, id string, l layer) error {
	opt := client.CopyOptions{User: "root"}
	names, err := l.files.top()
	if err != nil {
		return err
	}
	dest := path.Clean(l.dest)
	var made []string
	if l.files.single && !strings.HasSuffix(l.dest, "/") {
		if err := b.Client.MakeDir(ctx, id, path.Dir(dest), "root"); err != nil {
			return err
		}
		made = []string{dest}
	} else {
		if err := b.Client.MakeDir(ctx, id, dest, "root"); err != nil {
			return err
		}
		for _, name := range names {
			made = append(made, path.Join(dest, name))
		}
	}
	for _, name := range names {
		if err := b.Client.CopyTo(ctx, id, filepath.Join(l.files.dir, name), dest, opt); err != nil {
			return err
		}
	}
	if l.owner == "" || len(made) == 0 {
		return nil
	}
	for part := range slices.Chunk(made, 500) {
		if err := b.root(ctx, id, append([]string{"chown", "-R", "-h", l.owner, "--"}, part...)); err != nil {
			return fmt.Errorf("--chown=%s: %w", l.owner, err)
		}
	}
	return nil
}

// built is the content of ConfigFile.
type built struct {
	Config
	Key string `json:"build_key"` // of all inputs
}

// maxConfig limits the configuration that is read from a guest, in bytes.
const maxConfig = 1 << 20

// configOf returns the configuration in a snapshot. A snapshot without one has an empty one.
func (b *Builder) configOf(ctx context.Context, tag string) (built, error) {
	id, err := b.fork(ctx, tag, api.NetNone)
	if err != nil {
		return built{}, err
	}
	defer b.kill(ctx, id)
	return readConfig(ctx, b.Client, id)
}

func readConfig(ctx context.Context, c *client.Client, id string) (out built, err error) {
	r, err := c.Download(ctx, id, ConfigFile, "root")
	if client.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("%s of sandbox %s: %w", ConfigFile, id, err)
	}
	return out, nil
}

// ReadConfig returns the configuration of a sandbox whose snapshot was built from a Dockerfile. It
// is empty for other sandboxes. The guest can change it.
func ReadConfig(ctx context.Context, c *client.Client, id string) (Config, error) {
	out, err := readConfig(ctx, c, id)
	return out.Config, err
}

// finish makes the snapshot with the build's tag. It has the configuration, and its programs have
// the configuration's defaults.
func (b *Builder) finish(ctx context.Context, s *stage) (info api.SnapshotInfo, err error) {
	want := built{s.cfg, keyOf("image", s.key, s.cfg)}
	old, err := b.Client.Snapshot(ctx, b.Tag)
	switch {
	case err == nil && old.Status == api.SnapshotReady && !torn(old):
		if have, err := b.configOf(ctx, b.Tag); err == nil && have.Key == want.Key && !b.NoCache {
			return old.SnapshotInfo, nil
		}
	case err != nil && !client.IsNotFound(err):
		return info, err
	}
	ready, err := b.finished(ctx, s, want)
	if err != nil {
		return info, err
	}
	if err := b.Client.DeleteSnapshot(ctx, b.Tag, client.DeleteOptions{}); err != nil && !client.IsNotFound(err) {
		return info, fmt.Errorf("replace snapshot %s: %w", b.Tag, err)
	}
	if info, err = client.RenameSnapshot(ctx, b.Client, ready, b.Tag); err != nil {
		return info, err
	}
	return b.keep(ctx, info)
}

// finished makes the snapshot of a built image under a tag of its own, so that a full disk leaves the former image in
// place. A build that was killed may have made it.
func (b *Builder) finished(ctx context.Context, s *stage, want built) (tag string, err error) {
	tag = tagOf(want.Key)
	have, err := b.Client.Snapshot(ctx, tag)
	switch {
	case err == nil && have.Status == api.SnapshotReady && !torn(have) && !b.NoCache:
		return tag, nil
	case err != nil && !client.IsNotFound(err):
		return "", err
	}
	id, err := b.fork(ctx, s.tag, api.NetNone)
	if err != nil {
		return "", err
	}
	defer b.kill(ctx, id)
	text, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		return "", err
	}
	if err := b.Client.Upload(ctx, id, ConfigFile, "root", bytes.NewReader(text)); err != nil {
		return "", err
	}
	user, _, _ := strings.Cut(s.cfg.User, ":")
	d := client.Defaults{Env: s.cfg.Env, User: user, Workdir: s.cfg.Workdir}
	if d.Env != nil || d.User != "" || d.Workdir != "" {
		if err := b.Client.SetDefaults(ctx, id, d); err != nil {
			return "", fmt.Errorf("set the defaults of %s: %w", b.Tag, err)
		}
	}
	return tag, b.save(ctx, id, tag)
}

// keep removes the daemon's default rules from a built image: they are for snapshots of sandboxes at work. A tenant
// with a maximum cannot, and its image expires.
func (b *Builder) keep(ctx context.Context, made api.SnapshotInfo) (api.SnapshotInfo, error) {
	change := api.LabelsRequest{}
	for _, rule := range []string{retention.Expires, retention.KeepLast} {
		if _, has := made.Labels[rule]; has {
			change.Remove = append(change.Remove, rule)
		}
	}
	if len(change.Remove) == 0 {
		return made, nil
	}
	kept, err := client.LabelSnapshot(ctx, b.Client, made.Tag, change)
	if client.CodeOf(err) == api.CodeForbidden {
		return made, nil
	}
	return kept, err
}
