package imagebuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/forkd/forkd/api"
)

// layer is an instruction that changes files.
type layer struct {
	cmd    instructions.Command
	text   string // of the instruction, in one line
	key    string
	cfg    Config            // before the instruction
	env    map[string]string // of RUN: ENV and ARG
	argv   []string          // of RUN
	caches []string          // of RUN: directories whose content does not stay
	files  *payload          // of COPY and ADD from the context
	from   *stage            // of COPY from a stage or an image
	source []string          // of COPY from a stage or an image
	dest   string            // of COPY, ADD and WORKDIR
	owner  string            // of COPY and ADD; empty: root
	mode   fs.FileMode       // of COPY and ADD; 0: as in the source
}

// stage is a stage with all its inputs known.
type stage struct {
	name   string
	base   base
	above  *stage // the base, if that is a stage
	layers []layer
	cfg    Config
	key    string // of the last layer
	tag    string // of the stage's snapshot, once it exists
}

// base is an image or a snapshot that a stage starts from.
type base struct {
	tag   string // of the snapshot
	image string // from which the snapshot is made if it does not exist
	key   string
	cfg   Config
}

// keyOf returns a digest of parts in order.
func keyOf(parts ...any) string {
	b, _ := json.Marshal(parts) // texts, lists and maps of them: never fails
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// tagOf returns the tag of the layer with that key.
func tagOf(key string) string { return "build-" + key[:40] }

// planner computes the stages that a target needs.
type planner struct {
	*Builder
	stages map[int]*stage
	bases  map[string]*stage // of COPY --from=IMAGE
	global map[string]string // ARG before the first FROM
}

// platformArgs are the variables that BuildKit defines (docs.docker.com, "Automatic platform ARGs").
func platformArgs() map[string]string {
	out := map[string]string{}
	for _, who := range []string{"TARGET", "BUILD"} {
		maps.Copy(out, map[string]string{who + "PLATFORM": "linux/amd64", who + "OS": "linux", who + "ARCH": "amd64",
			who + "VARIANT": ""})
	}
	return out
}

// plan returns the target stage.
func (b *Builder) plan(ctx context.Context) (*stage, error) {
	target, err := b.File.target(b.Target)
	if err != nil {
		return nil, err
	}
	p := &planner{b, map[int]*stage{}, map[string]*stage{}, platformArgs()}
	for _, a := range b.File.args {
		if err := p.declare(p.global, nil, nil, &a); err != nil {
			return nil, err
		}
	}
	used := map[string]bool{}
	for _, a := range b.File.args {
		for _, kv := range a.Args {
			used[kv.Key] = true
		}
	}
	for _, s := range b.File.stages {
		for _, c := range s.Commands {
			if a, ok := c.(*instructions.ArgCommand); ok {
				for _, kv := range a.Args {
					used[kv.Key] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Args)) {
		if !used[name] && !predefined(name) {
			b.Report.Warn(fmt.Sprintf("--build-arg %s: no ARG of %s has this name", name, b.File.Name))
		}
	}
	return p.stage(ctx, target)
}

// predefined reports whether a build argument needs no ARG.
func predefined(name string) bool {
	proxies := []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}
	return slices.Contains(proxies, strings.ToUpper(name))
}

// declare adds the variables of an ARG to args. Values come from the command line, the instruction,
// or the ARG before the first FROM.
func (p *planner) declare(args, env, global map[string]string, a *instructions.ArgCommand) error {
	v := variables{env, args}
	if err := a.Expand(v.expander(p.File.escape)); err != nil {
		return p.File.refuse(a, "%v", err)
	}
	for _, kv := range a.Args {
		given, ok := p.Args[kv.Key]
		outer, known := global[kv.Key]
		switch {
		case ok:
			args[kv.Key] = given
		case kv.Value != nil:
			args[kv.Key] = *kv.Value
		case known:
			args[kv.Key] = outer
		}
	}
	return nil
}

func (p *planner) stage(ctx context.Context, i int) (*stage, error) {
	if s, ok := p.stages[i]; ok {
		return s, nil
	}
	parsed := p.File.stages[i]
	s := &stage{name: parsed.Name}
	if s.name == "" {
		s.name = strconv.Itoa(i)
	}
	if err := p.from(ctx, s, i); err != nil {
		return nil, err
	}
	args := map[string]string{}
	for name := range p.Args {
		if predefined(name) {
			args[name] = p.Args[name]
		}
	}
	for _, c := range parsed.Commands {
		if err := p.instruction(ctx, s, i, args, c); err != nil {
			return nil, err
		}
	}
	p.stages[i] = s
	return s, nil
}

// from resolves the base of a stage.
func (p *planner) from(ctx context.Context, s *stage, i int) error {
	parsed := p.File.stages[i]
	fail := func(err error) error { return located(p.File.Name, err, parsed.Location) }
	name, err := variables{nil, p.global}.expander(p.File.escape)(parsed.BaseName)
	if err != nil {
		return fail(err)
	}
	switch {
	case name == "":
		return fail(fmt.Errorf("FROM %s has no value", parsed.BaseName))
	case name == "scratch":
		return fail(fmt.Errorf("FROM scratch is not supported: a sandbox needs files to boot"))
	}
	if n := p.File.stage(name, i); n >= 0 {
		if s.above, err = p.stage(ctx, n); err != nil {
			return err
		}
		s.cfg, s.key = s.above.cfg.clone(), s.above.key
		s.cfg.ownCmd = false
		return nil
	}
	if s.base, err = p.find(ctx, name); err != nil {
		return fmt.Errorf("%s:%d: FROM %s: %w", p.File.Name, parsed.Location[0].Start.Line, name, err)
	}
	s.cfg, s.key = s.base.cfg.clone(), s.base.key
	return nil
}

// instruction adds one instruction to a stage.
func (p *planner) instruction(ctx context.Context, s *stage, i int, args map[string]string,
	c instructions.Command) error {
	v := variables{s.cfg.Env, args}
	expand := v.expander(p.File.escape)
	if a, ok := c.(*instructions.ArgCommand); ok {
		return p.declare(args, s.cfg.Env, p.global, a)
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		if err := e.Expand(expand); err != nil {
			return p.File.refuse(c, "%v", err)
		}
	}
	if err := p.File.checkSignal(c); err != nil {
		return err
	}
	if s.cfg.apply(c) {
		return nil
	}
	l := layer{cmd: c, text: oneLine(c), cfg: s.cfg.clone()}
	var err error
	var inputs any
	switch c := c.(type) {
	case *instructions.RunCommand:
		inputs, err = l.run(c, v)
	case *instructions.WorkdirCommand:
		l.dest = s.cfg.abs(c.Path)
		s.cfg.Workdir = l.dest
		inputs = l.dest
	case *instructions.CopyCommand:
		l.owner = c.Chown
		inputs, err = p.copy(ctx, i, &l, c.SourcesAndDest, c.Chmod, c.From, c.ExcludePatterns, false)
	case *instructions.AddCommand:
		l.owner = c.Chown
		inputs, err = p.copy(ctx, i, &l, c.SourcesAndDest, c.Chmod, "", c.ExcludePatterns, c.Unpack == nil || *c.Unpack)
	default:
		err = fmt.Errorf("%s is not supported", strings.ToUpper(c.Name()))
	}
	var source sourceError
	switch {
	case errors.As(err, &source): // not of the file: the daemon or a registry may have failed
		return fmt.Errorf("%s:%d: %s: %w", p.File.Name, c.Location()[0].Start.Line, l.text, source.error)
	case err != nil:
		return p.File.refuse(c, "%v", err)
	}
	l.key = keyOf("layer", s.key, c.Name(), inputs)
	s.key = l.key
	s.layers = append(s.layers, l)
	return nil
}

// sourceError is a failure to find the source of a COPY --from.
type sourceError struct{ error }

// oneLine returns the text of an instruction for people.
func oneLine(c instructions.Command) string {
	text := strings.Join(strings.Fields(fmt.Sprint(c)), " ")
	if len(text) > 100 {
		text = text[:97] + "..."
	}
	return text
}

// run sets the program of a RUN.
func (l *layer) run(c *instructions.RunCommand, v variables) (inputs any, err error) {
	if l.argv, err = l.cfg.script(c); err != nil {
		return nil, err
	}
	l.env = map[string]string{}
	maps.Copy(l.env, v.args)
	maps.Copy(l.env, v.env)
	for _, m := range instructions.GetMounts(c) {
		l.caches = append(l.caches, l.cfg.abs(m.Target))
	}
	return []any{l.argv, l.env, l.cfg.User, l.cfg.Workdir, l.caches}, nil
}

// copy sets the files of a COPY or ADD.
func (p *planner) copy(ctx context.Context, i int, l *layer, c instructions.SourcesAndDest, mode, from string,
	excluded []string, unpack bool) (inputs any, err error) {
	l.dest = l.cfg.abs(c.DestPath)
	if strings.HasSuffix(c.DestPath, "/") || len(c.SourcePaths)+len(c.SourceContents) > 1 {
		l.dest += "/"
	}
	if mode != "" {
		n, err := strconv.ParseUint(mode, 8, 12)
		if err != nil {
			return nil, fmt.Errorf("--chmod=%s: want octal permissions, such as 0755", mode)
		}
		l.mode = fs.FileMode(n)
	}
	if from != "" {
		if len(excluded) > 0 || len(c.SourceContents) > 0 {
			return nil, fmt.Errorf("--exclude and here-documents with --from are not supported")
		}
		return p.copyFrom(ctx, i, l, c.SourcePaths, from)
	}
	if l.files, err = newPayload(); err != nil {
		return nil, err
	}
	p.payloads = append(p.payloads, l.files)
	if err := p.Context.stage(l.files, c.SourcePaths, excluded); err != nil {
		return nil, err
	}
	for _, f := range c.SourceContents {
		if err := l.files.write(f.Path, f.Data); err != nil {
			return nil, err
		}
		l.files.single = len(c.SourcePaths)+len(c.SourceContents) == 1
	}
	if unpack {
		if err := l.files.unpackArchives(); err != nil {
			return nil, err
		}
	}
	if l.mode != 0 {
		if err := l.files.chmod(l.mode); err != nil {
			return nil, err
		}
	}
	digest, err := l.files.digest()
	return []any{digest, l.files.single, l.dest, l.owner}, err
}

// copyFrom sets the source of a COPY from a stage or an image.
func (p *planner) copyFrom(ctx context.Context, i int, l *layer, sources []string,
	from string) (inputs any, err error) {
	for _, s := range sources {
		if strings.ContainsAny(s, "*?[") {
			return nil, fmt.Errorf("patterns in a COPY --from are not supported: %s", s)
		}
	}
	l.source = sources
	if n := p.File.stage(from, i); n >= 0 {
		l.from, err = p.stage(ctx, n)
	} else if l.from = p.bases[from]; l.from == nil {
		l.from = &stage{name: from}
		l.from.base, err = p.find(ctx, from)
		l.from.key = l.from.base.key
		p.bases[from] = l.from
	}
	if err != nil {
		return nil, sourceError{err}
	}
	return []any{l.from.key, sources, l.dest, l.owner, l.mode}, nil
}

// needs returns the stages that a stage needs, in the order of their builds, and the stage itself.
func (s *stage) needs(seen map[*stage]bool) (all []*stage) {
	if s == nil || seen[s] {
		return nil
	}
	seen[s] = true
	all = s.above.needs(seen)
	for _, l := range s.layers {
		all = append(all, l.from.needs(seen)...)
	}
	return append(all, s)
}

// baseOf returns the base for an image of the daemon.
func baseOf(img api.Image, memoryMiB, vcpus int) base {
	key := keyOf("image", img.Digest, memoryMiB, vcpus)
	return base{tag: tagOf(key), image: img.Name, key: key, cfg: OfImage(img)}
}
