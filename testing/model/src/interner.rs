//! Numbers for values: millions of states contain a few thousand different ones.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Index;
use std::rc::Rc;

#[derive(Debug)]
pub struct Interner<T> {
    values: Vec<Rc<T>>,
    numbers: HashMap<Rc<T>, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Interner { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Hash + Eq> Interner<T> {
    pub fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let (number, value) = (self.values.len() as u32, Rc::new(value));
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    pub fn get(&self, number: u32) -> Rc<T> {
        self.values[number as usize].clone()
    }
}

impl<T> Index<u32> for Interner<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}
