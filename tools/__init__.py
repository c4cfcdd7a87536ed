"""Programs for building, testing and measuring the project; users do not install them."""
