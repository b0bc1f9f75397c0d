package registries

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEachRegistryKeepsSnapshots(t *testing.T) {
	for name, start := range registries {
		t.Run(name, func(t *testing.T) {
			ref := start(t) + "/team/app:1"
			a, b := newHost(t), newHost(t)
			a.make("one", 1)
			first := a.push("one", ref)
			if again := a.push("one", strings.TrimSuffix(ref, "1")+"2"); again.Digest != first.Digest {
				t.Errorf("a second push has the digest %s, want %s", again.Digest, first.Digest)
			}
			must(t, b.pull(ref, "two", nil, nil))
			b.same("two", a, "one")
			tags, err := b.repository(ref).Tags(t.Context())
			slices.Sort(tags) // docker-registry does not sort
			if err != nil || strings.Join(tags, " ") != "1 2" {
				t.Errorf("%q %v", tags, err)
			}
		})
	}
}

// skopeo copies a snapshot to another registry, and to a layout and back. The digest stays.
func TestSkopeoCopiesSnapshots(t *testing.T) {
	one, two := debian(t), library(t)
	a := newHost(t)
	a.make("one", 1)
	d := a.push("one", one+"/team/app:1")
	layout := "oci:" + filepath.Join(t.TempDir(), "layout") + ":1"
	copied := func(from, to string) {
		t.Helper()
		_, err := run(t, "skopeo", "copy", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false", from, to)
		must(t, err)
	}
	copied("docker://"+one+"/team/app:1", "docker://"+two+"/mirror/app:1")
	copied("docker://"+two+"/mirror/app:1", layout)
	copied(layout, "docker://"+one+"/back/app:1")
	for _, ref := range []string{two + "/mirror/app:1", one + "/back/app:1"} {
		b := newHost(t)
		if _, digest, err := b.repository(ref).Manifest(t.Context()); err != nil || digest.String() != d.Digest {
			t.Errorf("%s has the digest %s, want %s; %v", ref, digest, d.Digest, err)
		}
		must(t, b.pull(ref, "two", nil, nil))
		b.same("two", a, "one")
	}
	out, err := run(t, "skopeo", "inspect", "--raw", "--tls-verify=false", "docker://"+one+"/team/app:1")
	must(t, err)
	if !strings.Contains(out, "application/vnd.forkd.snapshot.v1") {
		t.Errorf("skopeo inspect --raw: %s", out)
	}
}

// skopeo reads a file of snapshot export, and such a file can be pushed by it.
func TestSkopeoReadsAnExport(t *testing.T) {
	registry := debian(t)
	a, b := newHost(t), newHost(t)
	a.make("one", 1)
	dir := t.TempDir()
	file := filepath.Join(dir, "one.tar")
	must(t, os.WriteFile(file, a.layout("one"), 0o600))
	_, err := run(t, "skopeo", "copy", "--dest-tls-verify=false", "oci-archive:"+file+":one",
		"docker://"+registry+"/team/app:1")
	must(t, err)
	must(t, b.pull(registry+"/team/app:1", "two", nil, nil))
	b.same("two", a, "one")
}
