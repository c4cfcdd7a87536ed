import js from "@eslint/js";

export default [
  { ignores: ["**/*.min.js"] },
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2024, sourceType: "module" },
    rules: {
      "no-undef": "off", // tsc knows what a browser has
      "no-unused-vars": ["error", { varsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-properties": ["error", ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map(
        (property) => ({ property, message: "Names of models are text, never HTML." }))],
    },
  },
];
