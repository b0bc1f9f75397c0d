package mirrors

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// PyPISays is the return value of forkd_hello.says() from the package.
const PyPISays = "hello from a Python package"

// NewPyPI makes an index, served at /simple/.
func NewPyPI() (http.Handler, error) {
	s := site{"/simple": page(link(Hello+"/", Hello), link(Words+"/", Words))}
	for _, w := range wheels {
		packed, err := w.pack()
		if err != nil {
			return nil, fmt.Errorf("make wheel of %s: %w", w.name, err)
		}
		name := w.file() + "-" + Version + "-py3-none-any.whl"
		s["/files/"+name] = packed
		s["/simple/"+w.name] = page(link(fmt.Sprintf("../../files/%s#sha256=%x", name, sha256.Sum256(packed)), name))
	}
	return s, nil
}

// page returns a page of PEP 503.
func page(links ...string) []byte {
	return []byte("<!DOCTYPE html>\n<html><body>\n" + strings.Join(links, "<br>\n") + "\n</body></html>\n")
}

func link(to, text string) string { return fmt.Sprintf(`<a href="%s">%s</a>`, to, text) }

// wheel is a package with one module.
type wheel struct{ name, needs, code string }

var wheels = []wheel{
	{Hello, Words, "import forkd_words\n\n\ndef says():\n    return forkd_words.words\n"},
	{Words, "", "words = \"" + PyPISays + "\"\n"},
}

// file returns the name in the form for file names.
func (w wheel) file() string { return strings.ReplaceAll(w.name, "-", "_") }

func (w wheel) pack() ([]byte, error) {
	info := w.file() + "-" + Version + ".dist-info/"
	about := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.name, Version)
	if w.needs != "" {
		about += "Requires-Dist: " + w.needs + " (==" + Version + ")\n"
	}
	files := []file{
		{name: w.file() + ".py", text: w.code},
		{name: info + "METADATA", text: about},
		{name: info + "WHEEL", text: "Wheel-Version: 1.0\nGenerator: forkd\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	files = append(files, file{name: info + "RECORD", text: record(info+"RECORD", files)})
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, f := range files {
		to, err := z.Create(f.name)
		if err == nil {
			_, err = io.WriteString(to, f.text)
		}
		if err != nil {
			return nil, errors.Join(err, z.Close())
		}
	}
	err := z.Close() // writes the list of files
	return out.Bytes(), err
}

// record returns the list of a wheel's files and of itself, as installers need it.
func record(itself string, files []file) string {
	var b strings.Builder
	for _, f := range files {
		sum := sha256.Sum256([]byte(f.text))
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
	}
	return b.String() + itself + ",,\n"
}
