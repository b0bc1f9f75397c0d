package ociimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	goerofs "github.com/erofs/go-erofs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestMergeOfLayers(t *testing.T) {
	for name, row := range map[string]struct {
		layers [][]string
		want   string
	}{
		"one layer":                    {[][]string{{"a/", "a/f=1", "l->a/f"}}, "a/ a/f=1 l->a/f"},
		"no folders":                   {[][]string{{"a/b/c=1"}}, "a/ a/b/ a/b/c=1"},
		"a later file wins":            {[][]string{{"f=1"}, {"f=22"}}, "f=22"},
		"a later entry wins":           {[][]string{{"f=1", "f=22", "./f=333"}}, "f=333"},
		"a whiteout":                   {[][]string{{"d/f=1", "d/g=2"}, {"d/.wh.f="}}, "d/ d/g=2"},
		"a whiteout of a folder":       {[][]string{{"d/e/f=1", "g=2"}, {".wh.d="}}, "g=2"},
		"a whiteout, then new":         {[][]string{{"d/f=1"}, {".wh.d=", "d/g=2"}}, "d/ d/g=2"},
		"new, then its whiteout":       {[][]string{{"d/f=1"}, {"d/g=2", ".wh.d="}}, "d/ d/g=2"},
		"a whiteout of this layer":     {[][]string{{"f=1", ".wh.f="}}, "f=1"},
		"a whiteout of a missing file": {[][]string{{"f=1"}, {"x/y/.wh.z="}}, "f=1"},
		"opaque":                       {[][]string{{"d/f=1", "d/e/x=1"}, {"d/", "d/.wh..wh..opq=", "d/g=2"}}, "d/ d/g=2"},
		"opaque at the end":            {[][]string{{"d/f=1"}, {"d/g=2", "d/.wh..wh..opq="}}, "d/ d/g=2"},
		"opaque root":                  {[][]string{{"d/f=1", "x=1"}, {".wh..wh..opq=", "y=2"}}, "y=2"},
		"opaque below new":             {[][]string{{"d/e/f=1"}, {"d/e/g=2", ".wh..wh..opq="}}, "d/ d/e/ d/e/g=2"},
		"whiteout then again a file":   {[][]string{{"f=1"}, {".wh.f="}, {"f=3"}}, "f=3"},
		"AUFS' files":                  {[][]string{{".wh..wh.plnk/x=1", ".wh..wh.aufs=", "f=1"}}, "f=1"},
		"a folder keeps its files":     {[][]string{{"d/f=1"}, {"d/"}}, "d/ d/f=1"},
		"a file over a folder":         {[][]string{{"d/f=1"}, {"d=2"}}, "d=2"},
		"a folder over a file":         {[][]string{{"d=1"}, {"d/"}}, "d/"},
		"a folder over a link":         {[][]string{{"e/f=1", "d->e"}, {"d/", "d/g=2"}}, "d/ d/g=2 e/ e/f=1"},
		"a link over a folder":         {[][]string{{"d/f=1"}, {"d->e"}}, "d->e"},
		"through a link":               {[][]string{{"run/", "var/", "var/run->/run"}, {"var/run/f=1"}}, "run/ run/f=1 var/ var/run->/run"},
		"whiteout through a link":      {[][]string{{"run/f=1", "r->run"}, {"r/.wh.f="}}, "r->run run/"},
		"a hard link":                  {[][]string{{"a=1", "d/b=>a"}}, "a=1 d/ d/b=1"},
		"a hard link to below":         {[][]string{{"a=1"}, {"b=>a", ".wh.a="}}, "b=1"},
		"one name of a hard link":      {[][]string{{"a=1", "b=>a"}, {"a=2"}}, "a=2 b=1"},
		"a hard link to a link":        {[][]string{{"l->x", "m=>l"}}, "l->x m->x"},
		"out of the root":              {[][]string{{"../../e=1", "/g=2", "x->../../..", "x/h=3"}}, "e=1 g=2 h=3 x->../../.."},
		"a link out of the root":       {[][]string{{"x->/../../etc", "x/passwd=1"}}, "etc/ etc/passwd=1 x->/../../etc"},
		"hard link out of the root":    {[][]string{{"etc/passwd=1", "x=>../../../etc/passwd"}}, "etc/ etc/passwd=1 x=1"},
		"a folder named like whiteout": {[][]string{{"a=1"}, {".wh.a/"}}, ""},
		"an empty layer":               {[][]string{{"a=1"}, {}}, "a=1"},
		"unicode":                      {[][]string{{"ä/\xff\xfe=1"}}, "ä/ ä/\xff\xfe=1"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range row.layers {
				layers = append(layers, tarOf(t, l...))
			}
			got, err := merged(t, layers...)
			if err != nil || got != row.want {
				t.Errorf("got  %q, %v\nwant %q", got, err, row.want)
			}
		})
	}
}

func TestRefusedLayers(t *testing.T) {
	for name, row := range map[string]struct {
		layers [][]string
		want   string
	}{
		"a loop of links":         {[][]string{{"a->b", "b->a", "a/f=1"}}, "symbolic links"},
		"below a file":            {[][]string{{"a=1", "a/f=1"}}, "not a folder"},
		"a hard link to a folder": {[][]string{{"d/", "x=>d"}}, "hard link to the folder"},
		"a missing hard link":     {[][]string{{"x=>d"}}, "missing"},
		"a whiteout of dots":      {[][]string{{".wh...="}}, "whiteout"},
		"a long name":             {[][]string{{strings.Repeat("n", 256) + "=1"}}, "256 bytes"},
		"a long path":             {[][]string{{strings.Repeat("n/", 3000) + "f=1"}}, "4096"},
		"a root that is a file":   {[][]string{{"."}}, "root"},
	} {
		var layers [][]byte
		for _, l := range row.layers {
			if l[0] != "." {
				layers = append(layers, tarOf(t, l...))
			}
		}
		if name == "a root that is a file" {
			layers = [][]byte{tarOfHeaders(t, file{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "."}})}
		}
		_, err := merged(t, layers...)
		t.Run(name, func(t *testing.T) { wantInvalid(t, err, row.want) })
	}
}

// Links make folders deeper than any path.
func TestDepthIsLimited(t *testing.T) {
	deep := strings.Repeat("d/", 1000)
	var entries []string
	at := deep
	for i := range 4 {
		entries = append(entries, at+"f=1", fmt.Sprintf("l%d->%s", i, at))
		at = fmt.Sprintf("l%d/%s", i, deep)
	}
	_, err := merged(t, tarOf(t, entries...))
	wantInvalid(t, err, "below each other")
}

// A whiteout of a large folder, many times.
func TestWorkIsLimited(t *testing.T) {
	var entries []string
	for i := range 2000 {
		entries = append(entries, fmt.Sprintf("d/f%d=", i))
	}
	for range 2000 {
		entries = append(entries, "d/.wh..wh..opq=")
	}
	tr := newTree(DefaultLimits)
	tr.work = maxWork - 1_000_000
	wantInvalid(t, tr.apply(t.Context(), bytes.NewReader(tarOf(t, entries...))), "steps")
}

func TestLimits(t *testing.T) {
	for name, row := range map[string]struct {
		limits Limits
		want   string
	}{
		"entries":  {Limits{Entries: 5}, "5 files"},
		"metadata": {Limits{Metadata: 5}, "5 bytes"},
		"unpacked": {Limits{Unpacked: 1000}, "1000 bytes"},
	} {
		img, err := open(t, layoutOf(t, imageOf(t, v1.Config{}, tarOf(t, "a/b/c/d/e/f=1", "g=1234567890123456"))), row.limits)
		if err == nil {
			_, err = root(t, img)
		}
		t.Run(name, func(t *testing.T) { wantInvalid(t, err, row.want) })
	}
}

func TestOwnersAttributesDevicesAndTimes(t *testing.T) {
	x := map[string]string{
		"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"SCHILY.xattr.user.note":           "n", "SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.com.apple.x": "z",
	}
	layer := tarOfHeaders(t,
		file{Header: tar.Header{Typeflag: tar.TypeReg, Name: "ping", Mode: 0o4755, Uid: 70000, Gid: 80000, PAXRecords: x, Size: 1}, data: "p"},
		file{Header: tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3}},
		file{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o660, Devmajor: 8, Devminor: 1}},
		file{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600}},
		file{Header: tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}},
		file{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o711, Uid: 9}})
	img, err := open(t, layoutOf(t, imageOf(t, v1.Config{}, layer)), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := root(t, img)
	if err != nil {
		t.Fatal(err)
	}
	stat := func(name string) *goerofs.Stat {
		info, err := fs.Stat(r, name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*goerofs.Stat)
	}
	p := stat("ping")
	if p.UID != 70000 || p.GID != 80000 || p.Mode != fs.ModeSetuid|0o755 || len(p.Xattrs) != 2 ||
		p.Xattrs["security.capability"] != x["SCHILY.xattr.security.capability"] || p.Xattrs["user.note"] != "n" {
		t.Errorf("ping: %+v", p)
	}
	if n := stat("null"); n.Mode != fs.ModeDevice|fs.ModeCharDevice|0o666 || n.Rdev != 0x103 {
		t.Errorf("null: %+v", n)
	}
	if n := stat("disk"); n.Mode != fs.ModeDevice|0o660 || n.Rdev != 0x801 {
		t.Errorf("disk: %+v", n)
	}
	if n := stat("pipe"); n.Mode != fs.ModeNamedPipe|0o600 {
		t.Errorf("pipe: %+v", n)
	}
	if n := stat("tmp"); n.Mode != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("tmp: %+v", n)
	}
	if n := stat("."); n.UID != 9 || n.Mode != fs.ModeDir|0o711 {
		t.Errorf("root: %+v", n)
	}
}

func TestBadOwnersAndDevices(t *testing.T) {
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "f", Uid: -1, Format: tar.FormatGNU},
		{Typeflag: tar.TypeReg, Name: "f", Uid: 1<<32 - 1},
		{Typeflag: tar.TypeChar, Name: "f", Devmajor: 1 << 13, Format: tar.FormatGNU},
		{Typeflag: 'V', Name: "f"},
		{Typeflag: tar.TypeSymlink, Name: "f"},
	} {
		_, err := merged(t, tarOfHeaders(t, file{Header: h}))
		wantInvalid(t, err, "")
	}
}

func TestAccounts(t *testing.T) {
	passwd := "etc/passwd=root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/var/www:/bin/false"
	group := "etc/group=root:x:0:\nstaff:x:50:\n"
	for user, want := range map[string]string{
		"": "root /root", "root": "root /root", "0": "root /root", "33": "www /var/www", "www": "www /var/www",
		"www:www": "error", "www:33": "www /var/www", "www:staff": "user33-50 /var/www", "1000": "user1000-0 /",
		"1000:1001": "user1000-1001 /", "missing": "error", "0:0": "root /root", "www:": "error",
	} {
		img, err := open(t, layoutOf(t, imageOf(t, v1.Config{User: user}, tarOf(t, passwd, group))), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := img.Merge(t.Context(), func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		name, home, err := r.Account()
		got := name + " " + home
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("user %q: %s (%v), want %s", user, got, err, want)
		}
		files, err := written(t, r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := fs.ReadFile(files, "etc/passwd")
		if err != nil || strings.HasPrefix(want, "user") != strings.Contains(string(b), "false\nuser") {
			t.Errorf("user %q: passwd %q %v", user, b, err)
		}
	}
}

func TestAnImageOfOneProgram(t *testing.T) {
	img, err := open(t, layoutOf(t, imageOf(t, v1.Config{User: "65532:65532"}, tarOf(t, "app=x"))), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := img.Merge(t.Context(), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if name, _, err := r.Account(); err != nil || name != "user65532-65532" {
		t.Errorf("%s %v", name, err)
	}
	if err := r.AddFile(File{Path: "/etc/forkd/image.json", Mode: 0o644, Data: []byte("{}")}); err != nil {
		t.Error(err)
	}
	files, err := written(t, r)
	if err != nil {
		t.Fatal(err)
	}
	want := "app=x etc/ etc/forkd/ etc/forkd/image.json={} etc/passwd=user65532-65532:x:65532:65532::/:/sbin/nologin\n"
	if got := list(t, files); got != want {
		t.Errorf("%q", got)
	}
}
