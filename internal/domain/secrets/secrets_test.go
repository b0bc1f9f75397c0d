package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const hidden = "a-value-that-never-shows"

func at(seconds int64) func() time.Time { return func() time.Time { return time.Unix(seconds, 0) } }

func testKey(fill byte) *Key {
	var k Key
	for i := range k.bytes {
		k.bytes[i] = fill
	}
	return &k
}

func open(t *testing.T, dir string, k *Key) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, Key: k, Now: at(1000)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func set(t *testing.T, s *Store, tenant, name, value string) Secret {
	t.Helper()
	got, err := s.Set(Change{Tenant: tenant, Name: name, Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func valueOf(t *testing.T, s *Store, tenant, name string) string {
	t.Helper()
	_, b, err := s.Value(tenant, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestASecretHasVersionsAndSurvivesTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := open(t, dir, testKey(1))
	first := set(t, s, "acme", "TOKEN", "one")
	again := set(t, s, "acme", "TOKEN", "one")
	second := set(t, s, "acme", "TOKEN", "two")
	if first.Version != 1 || again.Version != 1 || second.Version != 2 || first.ID != second.ID {
		t.Fatal(first, again, second)
	}
	if !s.Void(first.ID, 1) || s.Void(first.ID, 2) {
		t.Error("only the current version is valid")
	}
	s = open(t, dir, testKey(1))
	if valueOf(t, s, "acme", "TOKEN") != "two" {
		t.Error("the value is lost")
	}
	if _, err := s.Remove("acme", "TOKEN"); err != nil {
		t.Fatal(err)
	}
	anew := set(t, s, "acme", "TOKEN", "one")
	if anew.ID == first.ID || !s.Void(first.ID, 1) || !s.Void(first.ID, 2) || s.Void(anew.ID, 1) {
		t.Error("a removed secret's versions stay void")
	}
}

func TestTenantsDoNotShareSecrets(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "secrets"), testKey(1))
	set(t, s, "", "TOKEN", "operator's")
	set(t, s, "acme", "TOKEN", "acme's")
	if valueOf(t, s, "", "TOKEN") != "operator's" || valueOf(t, s, "acme", "TOKEN") != "acme's" {
		t.Error("one name of two owners is two secrets")
	}
	_, _, other := s.Value("evil", "TOKEN")
	_, _, absent := s.Value("evil", "TOKEN2")
	if !errors.Is(other, ErrNotFound) || strings.ReplaceAll(absent.Error(), "TOKEN2", "TOKEN") != other.Error() {
		t.Error(other, absent)
	}
	if list, _ := s.List("evil"); len(list) != 0 {
		t.Error(list)
	}
}

func TestWhatIsRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "secrets"), testKey(1))
	for name, c := range map[string]Change{
		"no name":          {Value: []byte("x")},
		"a path":           {Name: "../x", Value: []byte("x")},
		"a digit first":    {Name: "1x", Value: []byte("x")},
		"a long name":      {Name: strings.Repeat("x", 65), Value: []byte("x")},
		"no value":         {Name: "x"},
		"a long value":     {Name: "x", Value: make([]byte, MaxValue+1)},
		"odd metadata":     {Name: "x", Value: []byte("x"), Metadata: map[string]string{"a": "\x00"}},
		"nameless entries": {Name: "x", Value: []byte("x"), Metadata: map[string]string{"": "b"}},
	} {
		if _, err := s.Set(c); !errors.Is(err, ErrInvalid) {
			t.Error(name, err)
		}
	}
	for i := range MaxPerOwner {
		set(t, s, "acme", fmt.Sprintf("S%d", i), "x")
	}
	if _, err := s.Set(Change{Tenant: "acme", Name: "ONE_MORE", Value: []byte("x")}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	set(t, s, "acme", "S0", "rotated")
	set(t, s, "other", "S0", "x")
	if _, err := s.Set(Change{Tenant: "acme", Name: "S0", Value: []byte("x"), New: true}); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
}

func TestWithoutAKeyEveryCallNamesTheCure(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "secrets"), nil)
	_, set := s.Set(Change{Name: "x", Value: []byte("x")})
	_, list := s.List("")
	_, get := s.Get("", "x")
	_, remove := s.Remove("", "x")
	_, _, value := s.Value("", "x")
	for _, err := range []error{set, list, get, remove, value} {
		if !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "without a key") {
			t.Error(err)
		}
	}
	if s.Void("s", 1) {
		t.Error("without a key every version may still be valid")
	}
}

// fileOf returns the path of a secret's file.
func fileOf(s *Store, tenant, name string) string { return s.path(ownedName{tenant, name}) }

func TestDamagedAndSwappedFilesAreRefusedByName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := open(t, dir, testKey(1))
	mine := set(t, s, "acme", "MINE", hidden)
	set(t, s, "acme", "OTHER", "other")
	set(t, s, "evil", "MINE", "evil's")
	path := fileOf(s, "acme", "MINE")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func(tenant, name string) []byte {
		b, err := os.ReadFile(fileOf(s, tenant, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for what, b := range map[string][]byte{
		"empty":                         {},
		"truncated":                     good[:len(good)/2],
		"of another tenant":             read("evil", "MINE"),
		"of another name":               read("acme", "OTHER"),
		"another name's, renamed":       bytes.Replace(read("acme", "OTHER"), []byte(`"OTHER"`), []byte(`"MINE"`), 1),
		"another tenant's, renamed":     bytes.Replace(read("evil", "MINE"), []byte(`"evil"`), []byte(`"acme"`), 1),
		"with another version":          bytes.Replace(good, []byte(`"version": 1`), []byte(`"version": 7`), 1),
		"with another id":               bytes.Replace(good, []byte(mine.ID), []byte(newID()), 1),
		"with metadata":                 bytes.Replace(good, []byte(`"sealed"`), []byte(`"metadata":{"a":"b"},"sealed"`), 1),
		"of a later format":             bytes.Replace(good, []byte(`"format": 1`), []byte(`"format": 2`), 1),
		"with a changed value":          bytes.Replace(good, []byte(`"sealed": "`), []byte(`"sealed": "AAAA`), 1),
		"longer than any secret's file": append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxFile)...),
	} {
		if bytes.Equal(b, good) {
			t.Fatal(what, "is no change")
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Value("acme", "MINE"); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "MINE") {
			t.Errorf("%s: while the store is open: %v", what, err)
		}
		var log bytes.Buffer
		after, err := Open(Config{Dir: dir, Key: testKey(1), Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Errorf("%s: one file keeps the daemon from starting: %v", what, err)
			continue
		}
		if found, err := after.Get("acme", "MINE"); err != nil || found.Damage == "" {
			t.Errorf("%s: listed as %+v, %v", what, found, err)
		}
		if _, _, err := after.Value("acme", "MINE"); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
		if after.Void(mine.ID, 1) {
			t.Errorf("%s: its version is unknown, so it may still be valid", what)
		}
		if valueOf(t, after, "acme", "OTHER") != "other" || !strings.Contains(log.String(), "secret=MINE") {
			t.Errorf("%s: %s", what, log.String())
		}
		if strings.Contains(log.String(), hidden) {
			t.Errorf("%s: a value is in the log", what)
		}
	}
	after := open(t, dir, testKey(1))
	if cured := set(t, after, "acme", "MINE", "new"); cured.ID == mine.ID || !after.Void(mine.ID, 1) {
		t.Error("a secret that replaces an unreadable one is another secret")
	}
}

func TestAWrongKeyIsRefusedAtTheStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	set(t, open(t, dir, testKey(1)), "acme", "TOKEN", hidden)
	_, err := Open(Config{Dir: dir, Key: testKey(2)})
	if err == nil || !strings.Contains(err.Error(), "secret TOKEN in "+dir) || !strings.Contains(err.Error(), "another key") {
		t.Error(err)
	}
}

func TestValuesAreNotInFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := open(t, dir, testKey(1))
	set(t, s, "acme", "TOKEN", hidden)
	b, err := os.ReadFile(fileOf(s, "acme", "TOKEN"))
	if err != nil || bytes.Contains(b, []byte(hidden)) {
		t.Error(err, string(b))
	}
	st, err := os.Stat(fileOf(s, "acme", "TOKEN"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
	for _, text := range []string{fmt.Sprint(*s.cfg.Key), fmt.Sprintf("%#v", s.cfg.Key), fmt.Sprintf("%+v", *s.cfg.Key)} {
		if text != "(a key)" {
			t.Error(text)
		}
	}
}

func TestAnInterruptedSetLeavesOldOrNew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := open(t, dir, testKey(1))
	was := set(t, s, "acme", "TOKEN", "old")
	path := fileOf(s, "acme", "TOKEN")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was.Version = 2
	next, err := seal(s.cfg.Key, was, []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n <= len(next); n += 7 { // every part of the file that a Set writes before its rename
		if err := os.WriteFile(path+unfinished, next[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, dir, testKey(1)) // a second daemon does not remove the file of a running one
		if err := os.Chtimes(path+unfinished, time.Time{}, time.Now().Add(-2*leftoverAge)); err != nil {
			t.Fatal(err)
		}
		after := open(t, dir, testKey(1))
		if valueOf(t, after, "acme", "TOKEN") != "old" {
			t.Fatal("the old value is lost after", n, "bytes")
		}
		if _, err := os.Stat(path + unfinished); !errors.Is(err, os.ErrNotExist) {
			t.Fatal("a part of a file stays", err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, old) {
			t.Fatal("the old file has changed")
		}
	}
}

func TestAFullDiskKeepsTheOldValue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := open(t, dir, testKey(1))
	set(t, s, "acme", "TOKEN", "old")
	if err := os.Mkdir(fileOf(s, "acme", "TOKEN")+unfinished, 0o700); err != nil { // the new file cannot be written
		t.Fatal(err)
	}
	if err := os.WriteFile(fileOf(s, "acme", "TOKEN")+unfinished+"/in", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Set(Change{Tenant: "acme", Name: "TOKEN", Value: []byte(hidden)}); err == nil || strings.Contains(err.Error(), hidden) {
		t.Error(err)
	}
	if got, _ := s.Get("acme", "TOKEN"); got.Version != 1 || valueOf(t, s, "acme", "TOKEN") != "old" {
		t.Error(got)
	}
}

// killedVariable makes the test binary a process that changes a secret until it is killed.
const killedVariable = "FORKD_TEST_SECRETS_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedVariable); dir != "" {
		changeForEver(dir)
	}
	os.Exit(m.Run())
}

func changeForEver(dir string) {
	s, err := Open(Config{Dir: dir, Key: testKey(1)})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		if i%5 == 4 {
			_, err = s.Remove("acme", "TOKEN")
		} else {
			_, err = s.Set(Change{Tenant: "acme", Name: "TOKEN", Value: bytes.Repeat([]byte{byte('a' + i%26)}, 20_000)})
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(i)
	}
}

func TestKilledAtAnyTimeItHasAWholeValueOrNone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "secrets")
	for i := range 25 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), killedVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = out.Read(make([]byte, 1))
		time.Sleep(time.Duration(i) * 137 * time.Microsecond) // elapses: the kill comes at another step each time
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		s := open(t, dir, testKey(1))
		list, err := s.List("acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range list {
			if v := valueOf(t, s, "acme", found.Name); found.Damage != "" || len(v) != 20_000 || strings.Trim(v, v[:1]) != "" {
				t.Fatal("half a value", found)
			}
		}
	}
}
