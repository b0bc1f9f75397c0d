package mirrors

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// NPMSays is the export of the module Hello, and the output of its program.
const NPMSays = "hello from an npm package"

// NPM is a registry, served at /.
type NPM struct {
	tarballs  site
	documents map[string]document
}

// NewNPM makes a registry.
func NewNPM() (*NPM, error) {
	r := &NPM{site{}, map[string]document{}}
	for _, m := range modules {
		packed, err := m.pack()
		if err != nil {
			return nil, fmt.Errorf("make npm package %s: %w", m.Name, err)
		}
		at := "/" + m.Name + "/-/" + m.Name + "-" + Version + ".tgz"
		r.tarballs[at] = packed
		sum := sha512.Sum512(packed)
		m.manifest.Dist = &distribution{Tarball: at, Integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		r.documents["/"+m.Name] = document{
			Name: m.Name, DistTags: map[string]string{"latest": Version}, Versions: map[string]manifest{Version: m.manifest},
		}
	}
	return r, nil
}

func (r *NPM) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d, ok := r.documents[req.URL.Path]
	if !ok {
		r.tarballs.ServeHTTP(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(d.at("https://" + req.Host))
}

// document is a registry's document on a package.
type document struct {
	Name     string              `json:"name"`
	DistTags map[string]string   `json:"dist-tags"`
	Versions map[string]manifest `json:"versions"`
}

// at returns the document with absolute tarball URLs below registry, as npm needs them.
func (d document) at(registry string) document {
	versions := map[string]manifest{}
	for version, m := range d.Versions {
		whole := *m.Dist
		whole.Tarball = registry + whole.Tarball
		m.Dist = &whole
		versions[version] = m
	}
	d.Versions = versions
	return d
}

// manifest is a package.json. In a document it also has the package's address.
type manifest struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Main         string            `json:"main"`
	Bin          string            `json:"bin,omitempty"`
	Dependencies map[string]string `json:"dependencies,omitempty"`
	Dist         *distribution     `json:"dist,omitempty"`
}

type distribution struct {
	Tarball   string `json:"tarball"`
	Integrity string `json:"integrity"`
}

// module is a package before it is packed.
type module struct {
	manifest
	files []file
}

var modules = []module{
	{manifest{Name: Hello, Version: Version, Main: "index.js", Bin: "cli.js", Dependencies: map[string]string{Words: "^" + Version}},
		[]file{
			{"index.js", "module.exports = require(\"" + Words + "\").words\n", 0o644},
			{"cli.js", "#!/usr/bin/env node\nconsole.log(require(\".\"))\n", 0o755},
		}},
	{manifest{Name: Words, Version: Version, Main: "index.js"},
		[]file{{"index.js", "exports.words = \"" + NPMSays + "\"\n", 0o644}}},
}

func (m module) pack() ([]byte, error) {
	text, err := json.Marshal(m.manifest)
	if err != nil {
		return nil, err
	}
	files := append([]file{{"package.json", string(text), 0o644}}, m.files...)
	return tarball("package/", time.Now().Add(-age), files...)
}
