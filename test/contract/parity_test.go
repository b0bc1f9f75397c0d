package contract

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSDKsHaveTheSameSurface compares classes, members and options of the Python SDK with those of the
// TypeScript SDK. sdk/parity.yaml lists the accepted differences.
func TestSDKsHaveTheSameSurface(t *testing.T) {
	sdk := filepath.Join("..", "..", "sdk")
	python := surfaceOf(t, sdkPython(t), filepath.Join(sdk, "python", "scripts", "surface.py"))
	typescript := surfaceOf(t, nodeWith(t), filepath.Join(filepath.Dir(sdkTypeScript(t)), "scripts", "surface.mjs"))
	for name, s := range map[string]surface{"Python": python, "TypeScript": typescript} {
		if len(s["Sandbox"]) < 30 || len(s["Forkd"]) < 20 || len(s) < 40 {
			t.Fatalf("the surface of %s has %d classes, and %d members of Sandbox", name, len(s), len(s["Sandbox"]))
		}
	}
	rows, err := loadAccepted(parityFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range unexplained(compare(python, typescript), rows, python, typescript) {
		t.Error(text)
	}
}

func surfaceOf(t *testing.T, program, script string) surface {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, script)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, &stderr)
	}
	var s surface
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return s
}

func TestDifferencesOfSurfaces(t *testing.T) {
	method := func(options ...string) member { return member{Kind: "method", Options: options} }
	python := surface{
		"Sandbox": {"set_life": method("ttl", "auto_resume"), "close_stdin": method(), "import_": method(), "url": method(),
			"fork": {Kind: "method", Options: []string{"n"}, Open: true}},
		"Old": {},
	}
	typescript := surface{
		"Sandbox": {"setLife": method("ttlSecs", "signalled"), "import": method(), "extra": {Kind: "property"},
			"url": {Kind: "property"}, "fork": method("n", "cpus"), "constructor": method("x")},
	}
	got := compare(python, typescript)
	want := []difference{
		{onlyPython, "Old"}, {onlyPython, "Sandbox.closeStdin"}, {onlyTypeScript, "Sandbox.extra"},
		{onlyPython, "Sandbox.setLife(autoResume)"}, {onlyTypeScript, "Sandbox.setLife(signalled)"},
		{otherKind, "Sandbox.url"},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	rows := []accepted{
		{Python: []string{"Old"}, Why: "it is old", Instead: []string{"Sandbox.fork"}},
		{Python: []string{"Sandbox.closeStdin"}, TypeScript: []string{"Sandbox.setLife(*"}, Why: "of two kinds"},
		{TypeScript: []string{"Sandbox.extra"}, Python: []string{"Sandbox.setLife(autoResume)"}, Why: "more"},
		{Kind: []string{"Sandbox.url"}, Why: "a property"},
	}
	if left := unexplained(got, rows, python, typescript); len(left) != 0 {
		t.Errorf("with all differences listed: %q", left)
	}
	for _, c := range []struct {
		name string
		rows []accepted
		want string
	}{
		{"an unlisted difference", rows[1:], "Old is only in Python"},
		{"a difference that has gone", append([]accepted{{Python: []string{"Sandbox.gone"}, Why: "x"}}, rows...),
			"no longer true, remove it from the list: Sandbox.gone is only in Python"},
		{"the wrong side", append([]accepted{{TypeScript: []string{"Old"}, Why: "x"}}, rows...), "no longer true"},
		{"no reason", append([]accepted{{Python: []string{"Old"}}}, rows[1:]...), "a row has no reason: [Old]"},
		{"a stand-in that is not there",
			append([]accepted{{Python: []string{"Old"}, Why: "x", Instead: []string{"Sandbox.no"}}}, rows[1:]...),
			"Sandbox.no, which stands in for [Old][], does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			left := unexplained(got, c.rows, python, typescript)
			if len(left) != 1 || !strings.HasPrefix(left[0], c.want) {
				t.Errorf("got %q, want %q", left, c.want)
			}
		})
	}
}
