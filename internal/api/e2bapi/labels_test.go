package e2bapi_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// Metadata are labels for the other clients, as far as labels may have them, and labels of a sandbox without a
// record are metadata.
func TestMetadataAreLabels(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("x", labels.MaxValue+1)
	s := b.create(`{"templateID":"base","metadata":{"userId":"7","a b":"c&d","long":"` + long + `","esc":"\u001b"}}`)
	want := map[string]string{"userId": "7"}
	var id string
	for _, i := range b.engine.List() {
		if sandbox.DNSID(i.ID) == s.SandboxID {
			id = i.ID
			if !maps.Equal(i.Labels, want) {
				t.Errorf("its labels are %v, want %v", i.Labels, want)
			}
		}
	}
	if _, err := b.engine.LabelSandbox(t.Context(), id, labels.Change{Remove: []string{"userId"}}); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"metadata=userId%3D7", "metadata=a%252520b%3Dc%252526d", "metadata=long%3D" + long} {
		if list := b.do("GET", "/v2/sandboxes?"+query, "").body; !strings.Contains(list, s.SandboxID) {
			t.Errorf("%.40s does not find it: %s", query, list)
		}
	}
	native, err := b.engine.Fork(t.Context(), sandbox.ForkRequest{Tag: "base", N: 1, Labels: map[string]string{"job": "9"}})
	if err != nil {
		t.Fatal(err)
	}
	if list := b.do("GET", "/v2/sandboxes?metadata=job%3D9", "").body; !strings.Contains(list, sandbox.DNSID(native.Children[0].Info.ID)) {
		t.Errorf("a labelled sandbox is not found: %s", list)
	}
}

// Metadata with a label of the daemon's own is refused: such a sandbox would be missing from lists.
func TestReservedLabelsInMetadataAreRefused(t *testing.T) {
	d := volumeDaemon(t)
	v := want[newVolume](t, d.as(d.acme, "POST", "/volumes", `{"name":"data"}`), 201)
	for _, key := range []string{d.acme, apiKey} {
		a := d.as(key, "POST", "/v2/sandboxes", `{"templateID":"open","metadata":{"forkd.volume-files":"`+v.VolumeID+`"}}`)
		wantContent(t, "a create", a, 400, "the label forkd.volume-files is reserved")
	}
	wantContent(t, "the daemon's own", d.content(v, "PUT", "file", "/f", "x"), 201, "")
	if n := d.serving(); n != 1 {
		t.Errorf("%d sandboxes are marked", n)
	}
}
