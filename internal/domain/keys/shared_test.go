package keys

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// replaceFile replaces a file by a link to another one, as Kubernetes does with mounted Secrets.
func replaceFile(t *testing.T, path, target string) {
	t.Helper()
	if err := os.Symlink(target, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestSharedKeysAreFollowedAndNeverWritten(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	made := open(t, filepath.Join(dir, "made.json"), c)
	shared, text := create(t, made, spec())
	link := filepath.Join(dir, "shared.json")
	replaceFile(t, link, "made.json")

	s, err := Open(Config{Path: filepath.Join(dir, "own.json"), Shared: link, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	_, own := create(t, s, Spec{Name: "own", Tenant: "acme", Scopes: spec().Scopes})
	if !found(s, text) || !found(s, own) || len(s.List()) != 2 {
		t.Fatal("a key is missing")
	}
	if _, err := s.Revoke(shared.ID); !errors.Is(err, ErrInvalid) {
		t.Errorf("a shared key was revoked here: %v", err)
	}
	if _, _, err := s.Rotate(shared.ID, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("a shared key was rotated here: %v", err)
	}
	if found(open(t, filepath.Join(dir, "own.json"), c), text) {
		t.Error("the shared key was written into the own file")
	}
	bound := s.Bind(t.Context(), text)

	// An invalid file changes nothing.
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte(`{"format":1,"keys":[{}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	replaceFile(t, link, "bad.json")
	time.Sleep(2*sharedEvery + sharedEvery/2) // elapses: the invalid file is looked at
	if !found(s, text) || bound.Err() != nil {
		t.Error("an invalid file ended the keys")
	}

	// A key that leaves the file ends, and so do its streams. Another one comes.
	next := open(t, filepath.Join(dir, "next.json"), c)
	_, other := create(t, next, spec())
	replaceFile(t, link, "next.json")
	select {
	case <-bound.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the streams of a removed key go on")
	}
	if found(s, text) || !found(s, other) || !found(s, own) {
		t.Errorf("removed %v, new %v, own %v", found(s, text), found(s, other), found(s, own))
	}
}

func TestASharedFileIsChecked(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"missing": 0, "writable": 0o666, "broken": 0o600, "folder": os.ModeDir} {
		path := filepath.Join(dir, name)
		switch mode {
		case 0:
		case os.ModeDir:
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		default:
			if err := os.WriteFile(path, []byte(`{"format":1`), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(Config{Path: filepath.Join(dir, "own.json"), Shared: path}); err == nil {
			t.Errorf("%s: it was opened", name)
		}
	}
}
