//! Certificates for tests of TLS, good and bad, made by the `openssl` program in a folder that goes with the authority.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use crate::daemon::{find_program, run_to_the_end};

/// A root that signs.
pub struct Authority {
    folder: TempDir,
}

/// The names in a server's certificate.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// The content of a certificate.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    pub common_name: &'static str,
    /// Extension lines; empty makes a certificate of version 1.
    pub extensions: &'static str,
    /// The option that chooses it.
    pub digest: &'static str,
    /// As of when it is made; `None` is now.
    pub made_at: Option<&'static str>,
    pub signer: Signer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    Root,
    Itself,
    /// A certificate of the root that may not sign.
    Leaf,
}

impl Recipe {
    /// A certificate that is fine for a host.
    pub fn host(extensions: &'static str) -> Recipe {
        Recipe { common_name: "host", extensions, digest: "-sha256", made_at: None, signer: Signer::Root }
    }
}

impl Authority {
    pub fn new() -> Authority {
        let authority = Authority { folder: TempDir::with_prefix("outlast-certificates-").expect("a folder") };
        authority.openssl(
            None,
            &[&["req", "-x509", "-days", "2", "-subj", "/CN=root", "-out", "root.crt"], &CURVE[..], &["root.key"]]
                .concat(),
        );
        authority
    }

    pub fn root(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path("root.crt")).expect("it was made")
    }

    pub fn root_file(&self) -> PathBuf {
        self.path("root.crt")
    }

    pub fn issue(&self, recipe: Recipe) -> Identity {
        let subject = format!("/CN={}", recipe.common_name);
        self.openssl(None, &[&["req", "-subj", &subject, "-out", "request"], &CURVE[..], &["host.key"]].concat());
        fs::write(self.path("extensions"), recipe.extensions).expect("the folder can be written to");
        let mut words = vec!["x509", "-req", "-in", "request", "-out", "host.crt", "-days", "2", recipe.digest];
        match recipe.signer {
            Signer::Root => words.extend(["-CA", "root.crt", "-CAkey", "root.key", "-CAcreateserial"]),
            Signer::Itself => words.extend(["-signkey", "host.key"]),
            Signer::Leaf => {
                self.make_leaf();
                words.extend(["-CA", "leaf.crt", "-CAkey", "leaf.key", "-CAcreateserial"]);
            }
        }
        if !recipe.extensions.is_empty() {
            words.extend(["-extfile", "extensions"]);
        }
        self.openssl(recipe.made_at, &words);
        let mut chain = vec![CertificateDer::from_pem_file(self.path("host.crt")).expect("it was made")];
        if recipe.signer == Signer::Leaf {
            chain.push(CertificateDer::from_pem_file(self.path("leaf.crt")).expect("it was made"));
        }
        Identity { chain, key: PrivateKeyDer::from_pem_file(self.path("host.key")).expect("it was made") }
    }

    fn make_leaf(&self) {
        self.openssl(
            None,
            &[&["req", "-subj", "/CN=leaf", "-out", "leaf.request"], &CURVE[..], &["leaf.key"]].concat(),
        );
        fs::write(self.path("leaf.extensions"), "basicConstraints = CA:FALSE\n").expect("the folder can be written to");
        let sign = ["x509", "-req", "-in", "leaf.request", "-out", "leaf.crt", "-days", "2", "-CA", "root.crt"];
        let rest = ["-CAkey", "root.key", "-CAcreateserial", "-extfile", "leaf.extensions"];
        self.openssl(None, &[&sign[..], &rest].concat());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, made_at: Option<&str>, words: &[&str]) {
        let openssl = find_program("openssl", &[], "openssl");
        let mut command = match made_at {
            None => Command::new(openssl),
            Some(date) => {
                let mut command = Command::new(find_program("faketime", &[], "faketime"));
                command.arg(date).arg(openssl);
                command
            }
        };
        run_to_the_end(command.current_dir(self.folder.path()).args(words));
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

const CURVE: [&str; 6] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout"];
