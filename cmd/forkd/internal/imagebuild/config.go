package imagebuild

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/forkd/forkd/api"
)

// ConfigFile is the file in a built snapshot with the settings of its Dockerfile.
const ConfigFile = "/etc/forkd/container.json"

// Config holds the settings of an image, as changed by the instructions up to now.
type Config struct {
	Entrypoint   []string              `json:"entrypoint,omitempty"`
	Cmd          []string              `json:"cmd,omitempty"`
	User         string                `json:"user,omitempty"`
	Workdir      string                `json:"workdir,omitempty"`
	Env          map[string]string     `json:"env,omitempty"`
	ExposedPorts []string              `json:"exposed_ports,omitempty"`
	StopSignal   string                `json:"stop_signal,omitempty"`
	Healthcheck  *api.ImageHealthcheck `json:"healthcheck,omitempty"`
	Labels       map[string]string     `json:"labels,omitempty"`
	Volumes      []string              `json:"volumes,omitempty"`
	Shell        []string              `json:"shell,omitempty"`

	ownCmd bool // Cmd is of this stage
}

// Program returns the entrypoint and the command.
func (c Config) Program() []string { return slices.Concat(c.Entrypoint, c.Cmd) }

func (c Config) clone() Config {
	c.Env, c.Labels = maps.Clone(c.Env), maps.Clone(c.Labels)
	c.ExposedPorts, c.Volumes = slices.Clone(c.ExposedPorts), slices.Clone(c.Volumes)
	return c
}

// OfImage returns the settings of an image. They are empty for an image of a recipe.
func OfImage(img api.Image) Config {
	if img.Container == nil {
		return Config{}
	}
	i := img.Container
	return Config{
		Entrypoint: i.Entrypoint, Cmd: i.Cmd, User: i.User, Workdir: i.Workdir, Env: i.Env, ExposedPorts: i.ExposedPorts,
		StopSignal: i.StopSignal, Healthcheck: i.Healthcheck,
	}
}

func (c Config) shell() []string {
	if len(c.Shell) == 0 {
		return []string{"/bin/sh", "-c"}
	}
	return c.Shell
}

// variables are the values for $NAME: those of ENV, and of ARG if ENV has none.
type variables struct{ env, args map[string]string }

func (v variables) Get(name string) (string, bool) {
	if value, ok := v.env[name]; ok {
		return value, true
	}
	value, ok := v.args[name]
	return value, ok
}

func (v variables) Keys() []string {
	return slices.Concat(slices.Sorted(maps.Keys(v.env)), slices.Sorted(maps.Keys(v.args)))
}

// expander returns the expansion of words with the variables.
func (v variables) expander(escape rune) instructions.SingleWordExpander {
	lex := shell.NewLex(escape)
	return func(word string) (string, error) {
		longest := 0
		for _, m := range []map[string]string{v.env, v.args} {
			for _, value := range m {
				longest = max(longest, len(value))
			}
		}
		if len(word)+strings.Count(word, "$")*longest > maxExpanded {
			return "", fmt.Errorf("a text with its variables may have more than %d bytes", maxExpanded)
		}
		out, _, err := lex.ProcessWord(word, v)
		return out, err
	}
}

// maxExpanded limits a text with the values of its variables, in bytes. Without a limit, values that
// contain each other grow exponentially.
const maxExpanded = 4 << 20

// apply applies an instruction without an effect on files. It returns false for others.
func (c *Config) apply(cmd instructions.Command) bool {
	switch i := cmd.(type) {
	case *instructions.EnvCommand:
		for _, kv := range i.Env {
			setKey(&c.Env, kv.Key, kv.Value)
		}
	case *instructions.LabelCommand:
		for _, kv := range i.Labels {
			setKey(&c.Labels, kv.Key, kv.Value)
		}
	case *instructions.MaintainerCommand:
		setKey(&c.Labels, "maintainer", i.Maintainer)
	case *instructions.UserCommand:
		c.User = i.User
	case *instructions.ShellCommand:
		c.Shell = i.Shell
	case *instructions.CmdCommand:
		c.Cmd, c.ownCmd = c.program(i.ShellDependantCmdLine), true
	case *instructions.EntrypointCommand:
		c.Entrypoint = c.program(i.ShellDependantCmdLine)
		if !c.ownCmd { // a command of the base is for its own entrypoint
			c.Cmd = nil
		}
	case *instructions.ExposeCommand:
		for _, p := range i.Ports {
			if !strings.Contains(p, "/") {
				p += "/tcp"
			}
			c.ExposedPorts = appendNew(c.ExposedPorts, p)
		}
	case *instructions.VolumeCommand:
		for _, v := range i.Volumes {
			c.Volumes = appendNew(c.Volumes, v)
		}
	case *instructions.StopSignalCommand:
		c.StopSignal = i.Signal
	case *instructions.HealthCheckCommand:
		c.Healthcheck = healthOf(i)
	default:
		return false
	}
	return true
}

func healthOf(i *instructions.HealthCheckCommand) *api.ImageHealthcheck {
	h := i.Health
	return &api.ImageHealthcheck{Test: h.Test, Retries: h.Retries, IntervalSecs: seconds(h.Interval),
		TimeoutSecs: seconds(h.Timeout), StartPeriodSecs: seconds(h.StartPeriod)}
}

func seconds(d time.Duration) float64 { return d.Seconds() }

func setKey(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// program returns the arguments of a command line, with the shell for the shell form.
func (c Config) program(line instructions.ShellDependantCmdLine) []string {
	if !line.PrependShell {
		return line.CmdLine
	}
	return append(slices.Clone(c.shell()), strings.Join(line.CmdLine, " "))
}

// script returns the arguments of a RUN, with its here-documents.
func (c Config) script(run *instructions.RunCommand) ([]string, error) {
	if len(run.Files) == 0 {
		return c.program(run.ShellDependantCmdLine), nil
	}
	if !run.PrependShell {
		return nil, fmt.Errorf("a here-document needs the shell form of RUN")
	}
	text := strings.Join(run.CmdLine, " ")
	if len(run.Files) == 1 && strings.TrimSpace(text) == "<<"+run.Files[0].Name {
		if strings.HasPrefix(run.Files[0].Data, "#!") {
			return nil, fmt.Errorf("a here-document with its own interpreter is not supported: name the interpreter, " +
				"such as `RUN python3 <<EOF`")
		}
		return append(slices.Clone(c.shell()), run.Files[0].Data), nil
	}
	for _, f := range run.Files {
		text += "\n" + f.Data + f.Name
	}
	return append(slices.Clone(c.shell()), text+"\n"), nil
}

// abs returns a path of the guest, relative to the working directory.
func (c Config) abs(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join("/", c.Workdir, p)
}
