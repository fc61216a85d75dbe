//! The items that the crates define, by path: modules, types, variants, traits, functions, methods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{files, is_of_tests, module_of};

#[derive(Default)]
pub struct Items {
    paths: BTreeSet<String>,
    /// The modules that define a type of this name.
    homes: BTreeMap<String, Vec<Vec<String>>>,
    /// Methods and constants of `impl` blocks: the module of the block, the type, the name.
    members: Vec<(Vec<String>, String, String)>,
}

impl Items {
    /// The items of the library, and those of the core below `core`.
    pub fn of_the_source() -> Items {
        let mut items = Items::default();
        for (folder, root) in [("src", None), ("core/src", Some("core".to_owned()))] {
            let source = testkit::project_root().join(folder);
            for file in files(&source) {
                let inner = module_of(file.strip_prefix(&source).unwrap());
                let module: Vec<String> = root.iter().cloned().chain(inner).collect();
                items.add(&module, &fs::read_to_string(&file).unwrap());
            }
        }
        items.settled()
    }

    pub fn of(texts: &[(&str, &str)]) -> Items {
        let mut items = Items::default();
        for (module, text) in texts {
            let module: Vec<String> = module.split("::").map(String::from).collect();
            items.add(&module, text);
        }
        items.settled()
    }

    pub fn have(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    fn add(&mut self, module: &[String], text: &str) {
        self.paths.insert(module.join("::"));
        self.add_all(module, &syn::parse_file(text).unwrap().items);
    }

    fn add_all(&mut self, module: &[String], items: &[syn::Item]) {
        for item in items.iter().filter(|item| !is_of_tests(item)) {
            self.add_item(module, item);
        }
    }

    fn add_item(&mut self, module: &[String], item: &syn::Item) {
        match item {
            syn::Item::Fn(item) => self.add_path(module, &[&item.sig.ident]),
            syn::Item::Const(item) => self.add_path(module, &[&item.ident]),
            syn::Item::Static(item) => self.add_path(module, &[&item.ident]),
            syn::Item::Struct(item) => self.add_type(module, &item.ident),
            syn::Item::Type(item) => self.add_type(module, &item.ident),
            syn::Item::Enum(item) => {
                self.add_type(module, &item.ident);
                for variant in &item.variants {
                    self.add_path(module, &[&item.ident, &variant.ident]);
                }
            }
            syn::Item::Trait(item) => {
                self.add_type(module, &item.ident);
                for part in &item.items {
                    if let syn::TraitItem::Fn(method) = part {
                        self.add_path(module, &[&item.ident, &method.sig.ident]);
                    }
                }
            }
            syn::Item::Impl(item) => self.add_members(module, item),
            syn::Item::Mod(item) => {
                let inner = [module, &[item.ident.to_string()]].concat();
                if let Some((_, items)) = &item.content {
                    self.paths.insert(inner.join("::"));
                    self.add_all(&inner, items);
                }
            }
            _ => {}
        }
    }

    fn add_path(&mut self, module: &[String], names: &[&syn::Ident]) {
        let names = names.iter().map(ToString::to_string);
        let path: Vec<String> = module.iter().cloned().chain(names).collect();
        self.paths.insert(path.join("::"));
    }

    fn add_type(&mut self, module: &[String], name: &syn::Ident) {
        self.add_path(module, &[name]);
        self.homes.entry(name.to_string()).or_default().push(module.to_vec());
    }

    fn add_members(&mut self, module: &[String], block: &syn::ItemImpl) {
        let syn::Type::Path(path) = &*block.self_ty else {
            return;
        };
        let Some(of) = path.path.segments.last() else {
            return;
        };
        for part in &block.items {
            let name = match part {
                syn::ImplItem::Fn(method) => &method.sig.ident,
                syn::ImplItem::Const(constant) => &constant.ident,
                _ => continue,
            };
            self.members.push((module.to_vec(), of.ident.to_string(), name.to_string()));
        }
    }

    /// Resolves members to their types. A block may be in another module than its type. If several
    /// types have the same name, the nearest one is taken.
    fn settled(mut self) -> Items {
        for (module, of, name) in std::mem::take(&mut self.members) {
            let homes = self.homes.get(&of).into_iter().flatten();
            if let Some(home) = homes.max_by_key(|home| in_common(home, &module)) {
                self.paths.insert(format!("{}::{of}::{name}", home.join("::")));
            }
        }
        self
    }
}

fn in_common(one: &[String], other: &[String]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
