package image

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestBuildBase builds a real image from the host's package sources.
func TestBuildBase(t *testing.T) {
	if os.Getenv("FORKD_TEST_IMAGE") != "1" {
		t.Skip("FORKD_TEST_IMAGE is not 1: downloads packages, needs mmdebstrap and mkfs.erofs")
	}
	dir := t.TempDir()
	agent := buildAgent(t, dir)
	store, err := OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := LoadRecipe("../../../recipes/base")
	if err != nil {
		t.Fatal(err)
	}
	var steps []Step
	c := BuildConfig{Recipe: recipe, Agent: agent, Store: store, Cache: filepath.Join(dir, "cache"), Progress: func(p Progress) {
		if p.Done {
			steps = append(steps, p.Step)
		}
	}}
	img, err := Build(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Step{StepResolve, StepRoot, StepPack, StepKernel, StepInitrd, StepUpper, StepStore}; !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if err := img.Verify(context.Background()); err != nil {
		t.Error(err)
	}
	checkFiles(t, img)
	start := time.Now()
	again, err := Build(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("second build took %v; the image has %d MiB", time.Since(start), img.Size()>>20)
	if !again.Created.Equal(img.Created) {
		t.Error("a second build without a change made a new image")
	}
}

// buildAgent builds a static program to use as the agent.
func buildAgent(t *testing.T, dir string) string {
	t.Helper()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "agent")
	cmd := exec.Command("go", "build", "-o", out, src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build agent: %v\n%s", err, b)
	}
	return out
}

func checkFiles(t *testing.T, img Image) {
	t.Helper()
	for file, magic := range map[string]struct {
		at    int64
		bytes string
	}{
		KernelFile: {0, "\x7fELF"},
		InitrdFile: {0, "070701"},
		RootFile:   {1024, "\xe2\xe1\xf5\xe0"},
	} {
		f, err := os.Open(img.Path(file))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(magic.bytes))
		_, err = f.ReadAt(got, magic.at)
		f.Close()
		if err != nil || !bytes.Equal(got, []byte(magic.bytes)) {
			t.Errorf("%s has the magic % x, %v", file, got, err)
		}
	}
	if !slices.ContainsFunc(img.Packages, func(p string) bool { return len(p) > 5 && p[:5] == "bash=" }) {
		t.Error("the packages have no bash")
	}
}
