package build

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/build/archive"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Limits of uploaded files.
const (
	MaxUpload   = 4 << 30 // bytes of one archive, as sent
	maxUploads  = 32 << 30
	keepUploads = 7 * 24 * time.Hour
	// linkLife is the validity of an upload link. Clients allow an hour for an upload.
	linkLife = time.Hour + 10*time.Minute
	// Only a few archives are checked at a time, and of one owner even fewer.
	archivesAtOnce = 2
	archivesEach   = 1
)

// aHash matches the hash clients send for the files of a COPY, a SHA-256.
var aHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// filesDir returns the folder of an owner's archives. Owners do not share archives, because the
// sender alone decides which content a hash stands for.
func (s *Store) filesDir(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return filepath.Join(s.dir, "files", hex.EncodeToString(sum[:8]))
}

// part begins the names of unfinished uploads.
const part = ".part-"

// openFiles removes the files of unfinished uploads.
func (s *Store) openFiles() error {
	dir := filepath.Join(s.dir, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of uploads: %w", err)
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*", part+"*"))
	if err != nil {
		return err
	}
	for _, p := range parts {
		os.Remove(p)
	}
	return nil
}

// Uploaded reports whether the files of an owner's hash are stored. It protects them from
// collection for a while.
func (s *Store) Uploaded(owner, hash string, now time.Time) bool {
	if !aHash.MatchString(hash) {
		return false
	}
	return os.Chtimes(filepath.Join(s.filesDir(owner), hash+".json"), now, now) == nil
}

// uploaded is the record beside an archive.
type uploaded struct {
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
}

// Upload takes an archive of exactly size bytes, checks it, and stores it under its hash. It calls
// may before and during the upload, and returns its error. The upload counts in HeldBytes from
// before the first call.
func (s *Store) Upload(ctx context.Context, owner, hash string, size int64, r io.Reader, lim archive.Limits,
	may func() error) error {
	switch {
	case !aHash.MatchString(hash):
		return sandbox.Errorf(sandbox.ErrInvalid, "", "files hash %q: want a SHA-256", sandbox.Clip(hash))
	case size < 0 || size > MaxUpload:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "an archive of %d bytes, want at most %d", size, int64(MaxUpload))
	}
	end, err := s.begin(owner, size)
	if err != nil {
		return err
	}
	defer end()
	if err := errors.Join(may(), s.roomFor(size)); err != nil {
		return err
	}
	dir := s.filesDir(owner)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep upload: %w", err)
	}
	f, err := os.CreateTemp(dir, part)
	if err != nil {
		return fmt.Errorf("keep upload: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	still := func() error { return errors.Join(may(), s.roomFor(0)) }
	watch := &checked{r: io.LimitReader(r, size+1), last: time.Now(), may: still}
	in := &source{r: watch}
	n, err := io.Copy(f, in)
	switch {
	case watch.err != nil:
		return watch.err
	case in.err != nil:
		return &ReadError{in.err}
	case err != nil:
		return fmt.Errorf("keep upload: %w", err)
	case n != size:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the archive has %d bytes, its Content-Length is %d", n, size)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("keep upload: %w", err)
	}
	sum, err := s.scan(ctx, owner, f, lim)
	if err == nil {
		err = may() // the key may have been revoked meanwhile
	}
	if err != nil {
		return err
	}
	if err := s.keepUpload(dir, hash, f.Name(), uploaded{size, sum.Digest}); err != nil {
		return err
	}
	s.collectFiles(time.Now())
	return nil
}

// scan checks an archive when its owner has a turn.
func (s *Store) scan(ctx context.Context, owner string, r io.Reader, lim archive.Limits) (archive.Summary, error) {
	done, err := s.work.take(ctx, owner)
	if err != nil {
		return archive.Summary{}, err
	}
	defer done()
	sum, err := archive.Scan(ctx, r, lim)
	if err != nil && ctx.Err() == nil {
		err = sandbox.Errorf(sandbox.ErrInvalid, "", "%w", err)
	}
	return sum, err
}

// ReadError reports an upload cut off on its way to the daemon.
type ReadError struct {
	// Err is the error of the request's body.
	Err error
}

func (e *ReadError) Error() string { return "read upload: " + e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// source distinguishes errors of a reader from errors of a file.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// keepUpload gives an archive its name. It writes the record last, because the record marks the
// archive as complete.
func (s *Store) keepUpload(dir, hash, from string, u uploaded) error {
	b, err := json.Marshal(u)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note := filepath.Join(dir, hash+".json")
	if err := os.Remove(note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep upload: %w", err)
	}
	err = os.Rename(from, filepath.Join(dir, hash+".tar"))
	if err == nil {
		err = durable.Replace(note, b)
	}
	if err != nil {
		return fmt.Errorf("keep upload: %w", err)
	}
	return nil
}

// openUpload opens an archive. The open file stays valid when its name is removed or replaced.
func (s *Store) openUpload(owner, hash string) (*os.File, error) {
	f, err := durable.Open(filepath.Join(s.filesDir(owner), hash+".tar"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoFiles
	}
	return f, err
}

var errNoFiles = sandbox.Errorf(sandbox.ErrInvalid, "", "its files were not uploaded, or are not kept any more")

// digestOf returns the digest of the files a hash stands for.
func (s *Store) digestOf(owner, hash string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := durable.ReadFile(filepath.Join(s.filesDir(owner), hash+".json"), 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoFiles
	}
	var u uploaded
	if err == nil {
		err = json.Unmarshal(b, &u)
	}
	if err != nil {
		return "", fmt.Errorf("read note of files %s: %w", hash, err)
	}
	return u.Digest, nil
}

// collectFiles removes archives that were not used for a while. It then removes the oldest archives
// of an owner over the limit, and then the oldest of all owners.
func (s *Store) collectFiles(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type note struct {
		path string
		used time.Time
		size int64
	}
	var all []note
	var total int64
	each := map[string]int64{}
	paths, _ := filepath.Glob(filepath.Join(s.dir, "files", "*", "*.json"))
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			continue
		}
		n := note{path: p, used: st.ModTime()}
		if a, err := os.Stat(strings.TrimSuffix(p, ".json") + ".tar"); err == nil {
			n.size = a.Size()
		}
		all, total = append(all, n), total+n.size
		each[filepath.Dir(p)] += n.size
	}
	slices.SortFunc(all, func(a, b note) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	for _, n := range all {
		owner := filepath.Dir(n.path)
		tooMany := each[owner] > maxOwnerUploads || total > maxUploads && each[owner] > maxUploads/int64(len(each))
		if !tooMany && now.Sub(n.used) < keepUploads {
			continue
		}
		each[owner] -= n.size
		os.Remove(n.path)
		os.Remove(strings.TrimSuffix(n.path, ".json") + ".tar")
		total -= n.size
	}
}

// Link returns the signed query of an upload link. It permits the upload of these files for a
// while, as long as the requesting key is valid.
func (b *Builder) Link(template, owner, key, hash string) string {
	until := strconv.FormatInt(b.cfg.Now().Add(linkLife).Unix(), 10)
	return "expires=" + until + "&key=" + url.QueryEscape(key) + "&signature=" +
		b.signature(template, owner, key, hash, until)
}

func (b *Builder) signature(template, owner, key, hash, until string) string {
	mac := hmac.New(sha256.New, b.secret)
	mac.Write([]byte(keyOf("upload", template, owner, key, hash, until)))
	return hex.EncodeToString(mac.Sum(nil))
}

// CheckLink returns nil for a link that Link signed and that has not expired.
func (b *Builder) CheckLink(template, owner, key, hash, until, signature string) error {
	if !hmac.Equal([]byte(signature), []byte(b.signature(template, owner, key, hash, until))) {
		return errors.New("the upload link is not valid")
	}
	if at, err := strconv.ParseInt(until, 10, 64); err != nil || b.cfg.Now().Unix() > at {
		return errors.New("the upload link has expired")
	}
	return nil
}
