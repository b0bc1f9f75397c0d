package mirrors

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// DebianSays is the output of the program Hello from its package.
const DebianSays = "hello from a Debian package"

// Debian is a repository: "deb [signed-by=KEY] https://HOST/debian stable main".
type Debian struct {
	http.Handler
	Key []byte // armored signing key
}

// NewDebian makes a repository with a new key.
func NewDebian() (*Debian, error) {
	made := time.Now().Add(-age).UTC()
	s := site{}
	index, err := addDebs(s, made)
	if err != nil {
		return nil, fmt.Errorf("make Debian packages: %w", err)
	}
	release, err := addIndex(s, index, made)
	if err != nil {
		return nil, fmt.Errorf("make Debian index: %w", err)
	}
	signer, err := newSigner(made)
	if err != nil {
		return nil, fmt.Errorf("make key of the Debian repository: %w", err)
	}
	if s[dist+"InRelease"], err = signer.sign(release); err != nil {
		return nil, fmt.Errorf("sign Debian release: %w", err)
	}
	key, err := signer.public()
	if err != nil {
		return nil, fmt.Errorf("write key of the Debian repository: %w", err)
	}
	return &Debian{s, key}, nil
}

// deb is a package before it is packed.
type deb struct {
	name, depends, postinst string
	data                    []file
}

// debs are the two packages. The package Words does not contain its words as a file: its script
// makes the file, below DPKG_ROOT if dpkg installs into another root.
var debs = []deb{
	{name: Hello, depends: Words, data: []file{
		{"./usr/bin/" + Hello, "#!/bin/sh\nexec cat \"$(dirname \"$0\")/../../var/lib/" + Words + "/words\"\n", 0o755},
	}},
	{name: Words, data: []file{{"./usr/share/" + Words + "/words", DebianSays + "\n", 0o644}},
		postinst: "#!/bin/sh\nset -e\n[ \"$1\" = configure ] || exit 0\nmkdir -p \"$DPKG_ROOT/var/lib/" + Words + "\"\n" +
			"cp \"$DPKG_ROOT/usr/share/" + Words + "/words\" \"$DPKG_ROOT/var/lib/" + Words + "/words\"\n"},
}

// control returns the control paragraph, which the package and the index share.
func (d deb) control() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Package: %s\nVersion: %s\n", d.name, Version)
	b.WriteString("Architecture: all\nMaintainer: forkd <forkd@example.com>\n")
	if d.depends != "" {
		fmt.Fprintf(&b, "Depends: %s (= %s)\n", d.depends, Version)
	}
	b.WriteString("Description: made by a test of forkd\n")
	return b.String()
}

func (d deb) pack(made time.Time) ([]byte, error) {
	meta := []file{{"control", d.control(), 0o644}}
	if d.postinst != "" {
		meta = append(meta, file{"postinst", d.postinst, 0o755})
	}
	control, err := tarball("./", made, meta...)
	if err != nil {
		return nil, err
	}
	data, err := tarball("", made, d.data...)
	if err != nil {
		return nil, err
	}
	return ar(made, member{"debian-binary", []byte("2.0\n")}, member{"control.tar.gz", control},
		member{"data.tar.gz", data}), nil
}

// addDebs adds the packages to a site, and returns their index.
func addDebs(s site, made time.Time) (string, error) {
	var index strings.Builder
	for _, d := range debs {
		packed, err := d.pack(made)
		if err != nil {
			return "", err
		}
		at := "pool/" + d.name + "_" + Version + "_all.deb"
		s["/debian/"+at] = packed
		fmt.Fprintf(&index, "%sFilename: %s\nSize: %d\nSHA256: %x\n\n", d.control(), at, len(packed), sha256.Sum256(packed))
	}
	return index.String(), nil
}

const dist = "/debian/dists/stable/"

// addIndex adds the index to a site, and returns the release file with its digest.
func addIndex(s site, index string, made time.Time) (string, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(index))
	if err := errors.Join(err, z.Close()); err != nil {
		return "", err
	}
	var release strings.Builder
	fmt.Fprintf(&release, "Origin: forkd test\nSuite: stable\nCodename: stable\nDate: %s\nArchitectures: amd64\n"+
		"Components: main\nSHA256:\n", made.Format(time.RFC1123))
	for _, f := range []struct {
		name    string
		content []byte
	}{{"main/binary-amd64/Packages", []byte(index)}, {"main/binary-amd64/Packages.gz", packed.Bytes()}} {
		s[dist+f.name] = f.content
		fmt.Fprintf(&release, " %x %d %s\n", sha256.Sum256(f.content), len(f.content), f.name)
	}
	return release.String(), nil
}

// signer is the repository's key.
type signer struct {
	entity *openpgp.Entity
	config *packet.Config
}

func newSigner(made time.Time) (signer, error) {
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, DefaultHash: crypto.SHA512,
		Time: func() time.Time { return made }}
	entity, err := openpgp.NewEntity("forkd test", "", "forkd@example.com", config)
	return signer{entity, config}, err
}

func (s signer) sign(text string) ([]byte, error) {
	var out bytes.Buffer
	w, err := clearsign.Encode(&out, s.entity.PrivateKey, s.config)
	if err != nil {
		return nil, err
	}
	_, err = w.Write([]byte(text))
	err = errors.Join(err, w.Close())
	return append(out.Bytes(), '\n'), err // apt needs the newline to find the end
}

func (s signer) public() ([]byte, error) {
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err != nil {
		return nil, err
	}
	err = errors.Join(s.entity.Serialize(w), w.Close())
	return append(out.Bytes(), '\n'), err
}
