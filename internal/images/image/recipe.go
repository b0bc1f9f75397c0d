package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// ErrRecipe is wrapped by every error caused by the recipe.
var ErrRecipe = errors.New("bad recipe")

const (
	maxRecipe = 256 << 10
	// RecipeFile is the recipe's name in its folder.
	RecipeFile = "recipe.yaml"
)

// Recipe describes the content of an image. See docs/inside/formats/recipe.md.
type Recipe struct {
	Name        string            `yaml:"name"`
	Extends     Text              `yaml:"extends"`
	Description string            `yaml:"description"`
	Suite       string            `yaml:"suite"`
	Kernel      string            `yaml:"kernel"`
	Packages    []Text            `yaml:"packages"`
	Pip         []Text            `yaml:"pip"`
	PipNoDeps   []Text            `yaml:"pip_no_deps"`
	Npm         []Text            `yaml:"npm"`
	Modules     Texts             `yaml:"modules"`
	DiskDirs    []Text            `yaml:"disk_dirs"`
	Limits      GuestLimits       `yaml:"limits"`
	Files       []File            `yaml:"files"`
	Env         map[string]string `yaml:"env"`
	User        string            `yaml:"user"`
	Workdir     string            `yaml:"workdir"`
	Start       string            `yaml:"start"`
	Ready       *Ready            `yaml:"ready"`
	Warm        []Warm            `yaml:"warm"`
	FirstUse    string            `yaml:"first_use"`
	MemoryMiB   int               `yaml:"memory_mib"`
	VCPUs       int               `yaml:"vcpus"`
	Compression string            `yaml:"compression"`
	Disk        Text              `yaml:"disk"`

	path string  // of the recipe's file, for errors
	dir  string  // the recipe's directory
	base *Recipe // the extended recipe

	diskMiB int // from Disk; 0 for no disk
}

// Text is a string with its line, for errors.
type Text struct {
	Value string
	Line  int
}

// UnmarshalYAML decodes a scalar.
func (t *Text) UnmarshalYAML(node ast.Node) error {
	tok := node.GetToken()
	if tok == nil || tok.Position == nil {
		return errors.New("want a plain text")
	}
	switch n := node.(type) {
	case *ast.StringNode:
		t.Value = n.Value
	case *ast.IntegerNode, *ast.FloatNode:
		t.Value = tok.Value // the original text: 0755 is not 493
	default:
		return &yaml.SyntaxError{Message: "want a plain text", Token: tok}
	}
	t.Value, t.Line = strings.TrimSpace(t.Value), tok.Position.Line
	return nil
}

// Texts is a list of texts. A single text is a list of one.
type Texts []Text

// UnmarshalYAML decodes a scalar or a sequence of scalars.
func (t *Texts) UnmarshalYAML(node ast.Node) error {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		*t = make(Texts, 1)
		return (*t)[0].UnmarshalYAML(node)
	}
	*t = make(Texts, len(list.Values))
	for i, n := range list.Values {
		if err := (*t)[i].UnmarshalYAML(n); err != nil {
			return err
		}
	}
	return nil
}

// File is a file to put into the root.
type File struct {
	Path    Text    `yaml:"path"`
	Content *string `yaml:"content"`
	Source  string  `yaml:"source"`
	Mode    Text    `yaml:"mode"`

	recipe, dir string // the recipe that contains it, for errors, and the directory of its source
}

// Warm is code to run before the snapshot, either in a language's interpreter, which keeps running, or as a
// program.
type Warm struct {
	Language string `yaml:"language" json:"language"`
	Code     string `yaml:"code" json:"code"`
}

// LoadRecipe reads a recipe's file, or recipe.yaml in a directory.
func LoadRecipe(path string) (*Recipe, error) { return loadRecipe(path, 0) }

func loadRecipe(path string, depth int) (*Recipe, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, RecipeFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	defer f.Close()
	b, err := readCapped(f, maxRecipe)
	if err != nil {
		return nil, fmt.Errorf("read recipe %s: %w", path, err)
	}
	return parseRecipe(path, b, depth)
}

// ParseRecipe parses a recipe's text, sets defaults and checks every field that can be checked without building.
// path is used in errors and to find sources.
func ParseRecipe(path string, text []byte) (*Recipe, error) { return parseRecipe(path, text, 0) }

// parseRecipe is ParseRecipe for a recipe below depth extending ones.
func parseRecipe(path string, text []byte, depth int) (*Recipe, error) {
	r := &Recipe{path: path, dir: filepath.Dir(path)}
	if len(text) > maxRecipe {
		return nil, fmt.Errorf("%w: %s: larger than %d KiB", ErrRecipe, path, maxRecipe>>10)
	}
	if err := decodeStrict(text, r); err != nil {
		return nil, r.wrap(err)
	}
	for i := range r.Files {
		r.Files[i].recipe, r.Files[i].dir = path, r.dir
	}
	if err := r.extend(depth); err != nil {
		return nil, err
	}
	r.setDefaults()
	if err := r.check(); err != nil {
		return nil, r.wrap(err)
	}
	return r, nil
}

// packageNames returns the recipe's packages without their lines.
func (r *Recipe) packageNames() []string { return texts(r.Packages) }

// lineError is an error that begins with ":LINE: ", to follow a file name.
type lineError struct {
	line int // 0 for the whole file
	msg  string
}

func (e *lineError) Error() string {
	if e.line == 0 {
		return ": " + e.msg
	}
	return fmt.Sprintf(":%d: %s", e.line, e.msg)
}

func at(line int, format string, args ...any) error {
	return &lineError{line, fmt.Sprintf(format, args...)}
}

// decodeStrict decodes one document. A key without a field in v is an error with its line.
func decodeStrict(text []byte, v any) (err error) {
	// The library is not written for hostile input. A recipe is trusted enough to be built, but a typo must not
	// end the process.
	defer func() {
		if p := recover(); p != nil {
			err = at(0, "not valid YAML (%v)", p)
		}
	}()
	err = yaml.UnmarshalWithOptions(text, v, yaml.Strict())
	var y yaml.Error
	if !errors.As(err, &y) {
		return wrapPlain(err)
	}
	line := 0
	if t := y.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	msg := y.GetMessage()
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		msg = strings.Replace(msg, "unknown field", "unknown key", 1) + "; docs/inside/formats/recipe.md lists the keys"
	}
	return at(line, "%s", msg)
}

func wrapPlain(err error) error {
	if err == nil {
		return nil
	}
	return at(0, "%v", err)
}
