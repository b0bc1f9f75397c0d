package kernelpkg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/images/debtool"
)

const (
	shown612 = "Package: linux-image-cloud-amd64\nVersion: 6.12.95-1~bpo12+1\nDepends: linux-image-6.12.95+deb12-cloud-amd64 (= 6.12.95-1~bpo12+1)\nDescription: x\n more: y\n\n"
	shown61  = "Package: linux-image-cloud-amd64\nVersion: 6.1.192-2\nDepends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\n\n"
)

// fakeApt answers like apt, and writes the same files as apt-get download.
func fakeApt(show string, calls *int) debtool.Runner {
	return func(_ context.Context, c debtool.Command) ([]byte, error) {
		*calls++
		if c.Args[0] == "apt-cache" {
			if show == "" {
				return nil, &debtool.Error{Tool: "apt-cache", Err: errors.New("exit status 100"), Tail: []string{"E: No packages found"}}
			}
			return []byte(show), nil
		}
		name, version, _ := strings.Cut(c.Args[len(c.Args)-1], "=")
		return nil, os.WriteFile(filepath.Join(c.Dir, Candidate{name, version}.FileName()), []byte("deb"), 0o644)
	}
}

func TestFindChoosesTheSeries(t *testing.T) {
	for _, tc := range []struct{ name, show, ask, want string }{
		{"the default is 6.12", shown612 + shown61, "", "linux-image-6.12.95+deb12-cloud-amd64"},
		{"6.1 is not 6.12", shown612 + shown61, "6.1", "linux-image-6.1.0-56-cloud-amd64"},
		{"without 6.12 the newest", shown61, "", "linux-image-6.1.0-56-cloud-amd64"},
		{"a package by name", "Package: linux-image-6.1.0-50-cloud-amd64\nVersion: 6.1.176-1\n", "linux-image-6.1.0-50-cloud-amd64", "linux-image-6.1.0-50-cloud-amd64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls int
			c, err := Find(context.Background(), fakeApt(tc.show, &calls), tc.ask)
			if err != nil {
				t.Fatal(err)
			}
			if c.Package != tc.want || c.Version == "" {
				t.Errorf("got %+v, want %s", c, tc.want)
			}
		})
	}
}

func TestFindSaysWhatToDo(t *testing.T) {
	var calls int
	for _, tc := range []struct{ name, show, ask, want string }{
		{"no such series", shown61, "6.12", "has no version 6.12 (it has 6.1.192-2)"},
		{"no lists at all", "", "", "apt-get update"},
	} {
		_, err := Find(context.Background(), fakeApt(tc.show, &calls), tc.ask)
		if !errors.Is(err, ErrNoKernel) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", tc.name, err)
		}
	}
	if _, err := Find(context.Background(), fakeApt(shown61, &calls), "-o Evil"); err == nil || errors.Is(err, ErrNoKernel) {
		t.Errorf("an option as a series: %v", err)
	}
}

func TestFetchDownloadsOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	c := Candidate{Package: "linux-image-x", Version: "1:6.12-1"}
	var calls int
	for range 2 {
		p, err := Fetch(context.Background(), fakeApt("", &calls), c, dir)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(p) != "linux-image-x_1%3a6.12-1_amd64.deb" {
			t.Errorf("file is %s", p)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || calls != 1 {
		t.Errorf("%d calls, %d files left, %v: want 1 and 1", calls, len(left), err)
	}
}

func TestFetchFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	fail := func(context.Context, debtool.Command) ([]byte, error) { return nil, errors.New("no network") }
	if _, err := Fetch(context.Background(), fail, Candidate{"linux-image-x", "1"}, dir); err == nil || !strings.Contains(err.Error(), "no network") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
}
