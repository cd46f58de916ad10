package testenv

import (
	"bytes"
	_ "embed" // for pom.xml
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed pom.xml
var pom []byte

// artifactVersion is the version of a profile in pom.xml, for example of "kafka" or "postgres-18".
func artifactVersion(profile string) (string, error) {
	var project struct {
		Properties struct {
			Entries []struct {
				XMLName xml.Name
				Value   string `xml:",chardata"`
			} `xml:",any"`
		} `xml:"properties"`
	}
	if err := xml.Unmarshal(pom, &project); err != nil {
		return "", fmt.Errorf("read pom.xml: %w", err)
	}
	for _, e := range project.Properties.Entries {
		if e.XMLName.Local == profile {
			return e.Value, nil
		}
	}
	return "", fmt.Errorf("pom.xml has no version of %s", profile)
}

// fetch returns the directory that holds a profile's jars, asking Maven for them the first time.
func fetch(profile string) (string, error) {
	version, err := artifactVersion(profile)
	if err != nil {
		return "", err
	}
	cache, err := artifactDir()
	if err != nil {
		return "", err
	}
	return cached(filepath.Join(cache, profile+"-"+version), func(dir string) error {
		file := dir + ".pom.xml"
		if err := os.WriteFile(file, pom, 0o644); err != nil {
			return fmt.Errorf("write pom.xml: %w", err)
		}
		defer os.Remove(file) //nolint:errcheck // of no harm when it stays
		mvn := exec.Command("mvn", "--batch-mode", "--quiet", "--file", file, "-P", profile,
			"dependency:copy-dependencies", "-DoutputDirectory="+dir)
		var out bytes.Buffer
		mvn.Stdout, mvn.Stderr = &out, &out
		if _, err := runChild(mvn); err != nil {
			return fmt.Errorf("fetch %s with Maven: %w\n%s", profile, err, tail(out.Bytes(), 30))
		}
		return nil
	})
}
