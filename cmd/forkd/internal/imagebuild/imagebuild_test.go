package imagebuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// planOf plans a Dockerfile in a context with these files, without a daemon.
func planOf(t *testing.T, text string, files map[string]string, change ...func(*Builder)) (*stage, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Parse("Dockerfile", []byte(text))
	if err != nil {
		return nil, err
	}
	c, err := OpenContext(dir, filepath.Join(dir, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	b := &Builder{File: f, Context: c, Report: nothing{}, find: anyBase}
	for _, c := range change {
		c(b)
	}
	t.Cleanup(func() {
		for _, p := range b.payloads {
			p.remove()
		}
	})
	return b.plan(t.Context())
}

// anyBase returns an image for each name.
func anyBase(_ context.Context, name string) (base, error) {
	return baseOf(api.Image{Name: "img", Digest: "sha256:" + name, Container: &api.ImageContainer{
		Env: map[string]string{"PATH": "/bin"}, Cmd: []string{"sh"}, Workdir: "/work"}}, 0, 0), nil
}

func TestInstructionsOfAStage(t *testing.T) {
	s, err := planOf(t, `
ARG BASE=docker.io/library/debian:12
FROM $BASE
ENV A=1 B="two words"
ENV C=$A-$B PATH=/opt/bin:$PATH
ARG V=3
ARG G
RUN echo $V
WORKDIR sub
WORKDIR $C
USER app:staff
LABEL l=$V
EXPOSE 80 53/udp
VOLUME /data
STOPSIGNAL SIGINT
SHELL ["/bin/bash", "-c"]
HEALTHCHECK --interval=5s --retries=2 CMD curl localhost
RUN ["prog", "$A"]
ENTRYPOINT ["entry", "x"]
`, nil, func(b *Builder) { b.Args = map[string]string{"G": "given"} })
	if err != nil {
		t.Fatal(err)
	}
	c := s.cfg
	if c.Env["C"] != "1-two words" || c.Env["PATH"] != "/opt/bin:/bin" || c.Workdir != "/work/sub/1-two words" || c.User != "app:staff" {
		t.Errorf("%+v", c)
	}
	if c.Labels["l"] != "3" || !slices.Equal(c.ExposedPorts, []string{"53/udp", "80/tcp"}) || c.Volumes[0] != "/data" ||
		c.StopSignal != "SIGINT" || c.Healthcheck.IntervalSecs != 5 || c.Healthcheck.Retries != 2 {
		t.Errorf("%+v", c)
	}
	// ENTRYPOINT resets CMD of the base image.
	if !slices.Equal(c.Program(), []string{"entry", "x"}) {
		t.Errorf("the program is %q", c.Program())
	}
	if len(s.layers) != 4 || !slices.Equal(s.layers[0].argv, []string{"/bin/sh", "-c", "echo $V"}) ||
		s.layers[0].env["V"] != "3" || s.layers[0].env["G"] != "given" || s.layers[0].env["A"] != "1" {
		t.Errorf("%+v", s.layers)
	}
	if last := s.layers[3]; !slices.Equal(last.argv, []string{"prog", "$A"}) || last.cfg.User != "app:staff" {
		t.Errorf("the exec form of RUN is %+v", last)
	}
	if s.base.key != keyOf("image", "sha256:docker.io/library/debian:12", 0, 0) {
		t.Errorf("the base is %+v", s.base)
	}
}

func TestEntrypointAndCommand(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "sh",
		"ENTRYPOINT [\"e\"]":              "e",
		"CMD [\"c\"]\nENTRYPOINT [\"e\"]": "e c",
		"ENTRYPOINT [\"e\"]\nCMD c":       "e /bin/sh -c c",
		"ENTRYPOINT [\"e\"]\nCMD [\"c\"]\nFROM a": "sh",
		"ENTRYPOINT [\"e\"]\nCMD [\"c\"]\nFROM 0": "e c",
		"CMD [\"c\"]\nFROM 0\nENTRYPOINT [\"e\"]": "e",
		"SHELL [\"bash\", \"-c\"]\nCMD c":         "bash -c c",
	} {
		s, err := planOf(t, "FROM a\n"+text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.cfg.Program(), " "); got != want {
			t.Errorf("%q runs %q, want %q", text, got, want)
		}
	}
}

// keys returns the keys of a plan's layers.
func keys(t *testing.T, text string, files map[string]string, change ...func(*Builder)) (out []string) {
	t.Helper()
	s, err := planOf(t, text, files, change...)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range s.layers {
		out = append(out, l.key)
	}
	return out
}

// Checks that a change invalidates the layers that depend on it, and no others.
func TestKeys(t *testing.T) {
	const text = "FROM a\nRUN one\nCOPY f /f\nARG X=1\nRUN two\n"
	files := map[string]string{"f": "content", "other": "x"}
	before := keys(t, text, files)
	if again := keys(t, text, map[string]string{"f": "content", "other": "y"}); !slices.Equal(again, before) {
		t.Error("a file that is not copied changes keys")
	}
	for name, c := range map[string]struct {
		text  string
		files map[string]string
		same  int // layers that keep their key
	}{
		"another base":          {strings.Replace(text, "FROM a", "FROM b", 1), files, 0},
		"another command":       {strings.Replace(text, "RUN two", "RUN 2", 1), files, 2},
		"another file":          {text, map[string]string{"f": "changed"}, 1},
		"another argument":      {strings.Replace(text, "X=1", "X=2", 1), files, 2},
		"another variable":      {strings.Replace(text, "ARG X=1", "ENV X=1 Y=2", 1), files, 2},
		"another destination":   {strings.Replace(text, "/f\n", "/g\n", 1), files, 1},
		"another owner":         {strings.Replace(text, "COPY f", "COPY --chown=1 f", 1), files, 1},
		"another mode":          {strings.Replace(text, "COPY f", "COPY --chmod=755 f", 1), files, 1},
		"another user":          {strings.Replace(text, "RUN two", "USER u\nRUN two", 1), files, 2},
		"a setting without use": {text + "LABEL a=b\nCMD x\n", files, 3},
	} {
		after := keys(t, c.text, c.files)
		for i := range before {
			if same := after[i] == before[i]; same != (i < c.same) {
				t.Errorf("%s: layer %d is the same: %t", name, i, same)
			}
		}
	}
}

func TestStages(t *testing.T) {
	const text = `FROM a AS one
RUN build
FROM b AS unused
RUN never
FROM one AS two
COPY --from=one /x /y
COPY --from=example.org/tool:1 /bin/tool /bin/
COPY --from=0 /x /z
`
	s, err := planOf(t, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range s.needs(map[*stage]bool{}) {
		names = append(names, n.name)
	}
	if !slices.Equal(names, []string{"one", "example.org/tool:1", "two"}) {
		t.Errorf("the stages are %q", names)
	}
	if s.above == nil || s.above.name != "one" || s.layers[0].from != s.above || s.layers[2].from != s.above {
		t.Errorf("%+v", s)
	}
	if s, err := planOf(t, text, nil, func(b *Builder) { b.Target = "ONE" }); err != nil || s.name != "one" {
		t.Errorf("a target: %+v, %v", s, err)
	}
	if _, err := planOf(t, text, nil, func(b *Builder) { b.Target = "three" }); err == nil || !strings.Contains(err.Error(), "one, unused, two") {
		t.Errorf("a missing target: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":        "Dockerfile",
		"RUN x":   "Dockerfile:1",
		"ARG A=1": "Dockerfile has no FROM",
		"FROM a\nENV A=0123456789abcdef" + strings.Repeat("\nENV A=$A$A$A$A$A$A$A$A", 12): "more than 4194304 bytes",
		"FROM a\nFRUM b":                            "Dockerfile:2: unknown instruction: FRUM",
		"FROM scratch":                              "Dockerfile:1: FROM scratch",
		"ARG B=scratch\nFROM $B":                    "Dockerfile:2: FROM scratch",
		"FROM --platform=linux/arm64 a":             "Dockerfile:1: FROM --platform=linux/arm64",
		"FROM a\nADD https://e.org/x /x":            "Dockerfile:2: ADD of https://e.org/x",
		"FROM a\nADD git@e.org:x.git /x":            "Dockerfile:2: ADD of git@e.org:x.git",
		"FROM a\nONBUILD RUN x":                     "Dockerfile:2: ONBUILD",
		"FROM a\nRUN --mount=type=secret,id=s x":    "Dockerfile:2: RUN --mount=type=secret",
		"FROM a\nRUN --mount=type=bind,target=/x x": "Dockerfile:2: RUN --mount=type=bind",
		"FROM a\nRUN --network=none x":              "Dockerfile:2: RUN --network",
		"FROM a\nSTOPSIGNAL SIGFOO":                 "Dockerfile:2: STOPSIGNAL \"SIGFOO\": want a name",
		"FROM a\nARG S=99\nSTOPSIGNAL $S":           "Dockerfile:3: STOPSIGNAL \"99\": want a name",
		"FROM a\nHEALTHCHECK --timeout=999us CMD x": "Dockerfile",
		"FROM a\nHEALTHCHECK --timeout=25h CMD x":   "Dockerfile:2: HEALTHCHECK: health check: timeout of 25h0m0s",
		"FROM a\nCOPY missing /x":                   "Dockerfile:2: missing is not in the build context",
		"FROM a\nCOPY --chmod=u+x f /x":             "Dockerfile:2: --chmod=u+x",
		"FROM a\nCOPY --parents f /x":               "Dockerfile:2:",
		"FROM a\nCOPY --from=0 f /x":                "Dockerfile:2: COPY --from=0",
		"FROM a AS x\nFROM b\nCOPY --from=x /a* /x": "Dockerfile:3: patterns",
		"FROM a\nRUN <<E\n#!/usr/bin/env perl\nE":   "Dockerfile:2: a here-document with its own interpreter",
		"FROM ${NOTHING}":                           "Dockerfile:1:",
	} {
		_, err := planOf(t, text, map[string]string{"f": "x"})
		if !errors.Is(err, ErrDockerfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestHereDocuments(t *testing.T) {
	s, err := planOf(t, "FROM a\nRUN <<E\na\nb\nE\nRUN cat <<E > f\ntext\nE\nCOPY <<F /etc/conf\nx=1\nF\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.layers[0].argv[2]; got != "a\nb\n" {
		t.Errorf("a script is %q", got)
	}
	if got := s.layers[1].argv[2]; got != "cat <<E > f\ntext\nE\n" {
		t.Errorf("a here-document in a command is %q", got)
	}
	l := s.layers[2]
	names, _ := l.files.top()
	if len(names) != 1 || !l.files.single || l.dest != "/etc/conf" {
		t.Errorf("the file is %q, %+v", names, l)
	}
}

func staged(t *testing.T, text string, files map[string]string) string {
	t.Helper()
	s, err := planOf(t, "FROM a\n"+text, files)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	dir := s.layers[0].files.dir
	_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, _ error) error {
		if rel, _ := filepath.Rel(dir, at); rel != "." && !d.IsDir() {
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	return strings.Join(out, " ")
}

func TestSourcesOfCOPY(t *testing.T) {
	files := map[string]string{"a.txt": "", "b.txt": "", "dir/x": "", "dir/y.log": "", "dir/sub/z": "", "keep/k.log": "",
		".dockerignore": "**/*.log\n!keep/k.log\nsecret\n", "secret": "s"}
	for text, want := range map[string]string{
		"COPY . /d":                ".dockerignore a.txt b.txt dir/sub/z dir/x keep/k.log",
		"COPY *.txt /d/":           "a.txt b.txt",
		"COPY dir /d":              "sub/z x",
		"COPY dir/ a.txt /d/":      "a.txt sub/z x",
		"COPY /a.txt /d":           "a.txt",
		"COPY ../../a.txt /d":      "a.txt",
		"COPY --exclude=sub dir /": "x",
	} {
		if got := staged(t, text, files); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if _, err := planOf(t, "FROM a\nCOPY secret /s\n", files); err == nil || !strings.Contains(err.Error(), ".dockerignore") {
		t.Errorf("an excluded file: %v", err)
	}
}

// Checks that links of the context do not lead out of it.
func TestAContextIsAWall(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, to := range map[string]string{"file": filepath.Join(outside, "secret"), "dir": outside} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := OpenContext(dir, "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, source := range []string{"file", "dir", "dir/secret", "../" + filepath.Base(outside) + "/secret"} {
		p, err := newPayload()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.stage(p, []string{source}, nil); err == nil {
			t.Errorf("%s is copied", source)
		}
		p.remove()
	}
	p, err := newPayload()
	if err != nil {
		t.Fatal(err)
	}
	defer p.remove()
	if err := c.stage(p, []string{"."}, nil); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(p.dir, "file")); err != nil || to != filepath.Join(outside, "secret") {
		t.Errorf("a link in a folder is %q, %v, want its text", to, err)
	}
}

// archiveOf returns a compressed archive with these entries.
func archiveOf(t testing.TB, entries ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = 1
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Close()
	z.Close()
	return b.String()
}

func TestADDUnpacksArchives(t *testing.T) {
	good := archiveOf(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o640}, tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "f"},
		tar.Header{Name: "d/h", Typeflag: tar.TypeLink, Linkname: "d/f"})
	if got := staged(t, "ADD a.tgz /x", map[string]string{"a.tgz": good}); got != "d/f d/h d/l" {
		t.Errorf("the files are %q", got)
	}
	if got := staged(t, "ADD --unpack=false a.tgz /x", map[string]string{"a.tgz": good}); got != "a.tgz" {
		t.Errorf("without unpacking: %q", got)
	}
	if got := staged(t, "ADD plain bad.gz /x/", map[string]string{"plain": "text", "bad.gz": "\x1f\x8bdamaged"}); got != "bad.gz plain" {
		t.Errorf("other files: %q", got)
	}
	for name, evil := range map[string][]tar.Header{
		"a path above":          {{Name: "../../evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"a link to a folder":    {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, {Name: "l/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"a hard link to a file": {{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
	} {
		s, err := planOf(t, "FROM a\nADD a.tgz /x", map[string]string{"a.tgz": archiveOf(t, evil...)})
		if err != nil {
			continue
		}
		if got, _ := s.layers[0].files.top(); !slices.Equal(got, []string{"evil"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if _, err := os.Stat("/tmp/evil"); err == nil {
		t.Error("an archive writes outside of its folder")
	}
}

// FuzzParse parses and plans Dockerfiles. They must not panic, and an error names the file.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"FROM a\nRUN x", "ARG A=1\nFROM b:$A AS c\nCOPY --from=c --chown=1:2 a b /c/\nRUN <<E\nx\nE\n",
		"# escape=`\nFROM a\nENV A=`\n b\n", "FROM a\nHEALTHCHECK CMD x\nSHELL [\"a\"]\nENTRYPOINT x\nONBUILD RUN y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("Dockerfile", []byte(text))
		if err != nil {
			if !errors.Is(err, ErrDockerfile) || !strings.Contains(err.Error(), "Dockerfile") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		b := &Builder{File: file, Report: nothing{}, find: anyBase}
		if strings.Contains(strings.ToUpper(text), "COPY") || strings.Contains(strings.ToUpper(text), "ADD") {
			return // these read files
		}
		_, _ = b.plan(t.Context())
	})
}
